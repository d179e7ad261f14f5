"""How far behind a link is, and whether `lag-critical` allows that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.links.critical import LagCritical, LinkRate, describe_lag, seconds_behind
from agent.core.links.restarts import needs_restart
from agent.core.model import LinkSettings
from tests.unit.core.some_links import exchange_link, queue_link, shovel_link

LIMIT = LagCritical(seconds=300)


@pytest.mark.parametrize(
    ("backlog", "rate", "stuck", "probe", "behind"),
    [
        (None, 5.0, 9.0, None, None),
        (0, 0.0, 9.0, None, 0.0),
        (100, 4.0, 9.0, None, 25.0),
        (100, 0.0, 9.0, None, 9.0),
        (100, 4.0, 9.0, 0.5, 0.5),
        (None, 0.0, 9.0, 0.5, 0.5),
    ],
)
def test_seconds_behind(
    backlog: int | None, rate: float, stuck: float, probe: float | None, behind: float | None
) -> None:
    assert seconds_behind(backlog, rate, stuck=stuck, probe=probe, interval=1.0) == behind


@pytest.mark.parametrize(
    ("limit", "flow", "held", "told"),
    [
        (
            LagCritical(seconds=30),
            LinkRate(47.0, 153.0),
            (10, 10),
            "3 min 17 s behind (limit 30 s): in 200/s, out 47/s, all 10 of its prefetch unconfirmed",
        ),
        (LagCritical(seconds=30), LinkRate(47.0, 0.0), (9, 10), "3 min 17 s behind (limit 30 s): in 47/s, out 47/s"),
        (LagCritical(seconds=30), LinkRate(0.0, None), (10, 10), "3 min 17 s behind (limit 30 s): out 0/s"),
        (
            LagCritical(messages=1_000),
            LinkRate(90.0, -40.0),
            (10, 10),
            "9,600 messages wait (limit 1,000): catching up at 40/s, about 4 min left",
        ),
    ],
)
def test_it_is_told_how_far_behind_a_link_is_and_why(
    limit: LagCritical, flow: LinkRate, held: tuple[int, int], told: str
) -> None:
    assert describe_lag(limit, backlog=9_600, behind=197.4, flow=flow, held=held, is_auto=True).text == told


@pytest.mark.parametrize(
    ("flow", "unsettled", "is_auto", "expected"),
    [
        (LinkRate(47.0, 153.0), 10, False, (False, True)),
        (LinkRate(47.0, 153.0), 10, True, (False, False)),
        (LinkRate(47.0, 153.0), 9, False, (False, False)),
        (LinkRate(0.0, 153.0), 10, False, (False, False)),  # more of them wouldn't be confirmed either
        (LinkRate(47.0, -40.0), 10, False, (True, False)),
        (LinkRate(47.0, None), 10, False, (False, False)),
    ],
)
def test_what_holds_it_up_is_known_without_reading_the_text(
    flow: LinkRate, unsettled: int, is_auto: bool, expected: tuple[bool, bool]
) -> None:
    limit = LagCritical(seconds=30)
    told = describe_lag(limit, backlog=9_600, behind=197.4, flow=flow, held=(unsettled, 10), is_auto=is_auto)
    assert (told.is_catching_up, told.is_at_prefetch) == expected


@pytest.mark.parametrize(
    ("backlog", "rate", "behind"), [(100, 4.0, 25.0), (100, 100.0, 5.7), (100, 0.0, 9.0), (0, 0.0, 5.7), (None, 0, 5.7)]
)
def test_a_probe_that_is_overdue_shows_the_least(backlog: int | None, rate: float, behind: float) -> None:
    """It expires before it gets through a long queue, so what the next ones have waited for grows no further."""
    assert seconds_behind(backlog, rate, stuck=9.0, probe=5.7, interval=1.0) == behind


@pytest.mark.parametrize(
    ("limit", "backlog", "behind", "reached"),
    [
        (LIMIT, 10**6, 299.0, False),
        (LIMIT, 1, 300.0, True),
        (LIMIT, 1, None, False),
        (LagCritical(messages=5), 5, 0.0, True),
        (LagCritical(messages=5), 4, 900.0, False),
        (LagCritical(messages=5), None, 900.0, False),
    ],
)
def test_what_is_critical(limit: LagCritical, backlog: int | None, behind: float | None, reached: bool) -> None:
    assert limit.is_reached(backlog=backlog, behind=behind) is reached


def test_a_change_restarts_no_link() -> None:
    settings = LinkSettings(lag_critical=LIMIT)
    assert not needs_restart(exchange_link(), exchange_link(settings=settings))
    assert not needs_restart(queue_link(), replace(queue_link(), settings=settings))
    shovel = shovel_link()
    changed = replace(shovel.shovel, settings=replace(shovel.settings, lag_critical=LIMIT))
    assert not needs_restart(shovel, replace(shovel, shovel=changed))
