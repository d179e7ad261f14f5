"""How far a link is behind, when its probes are lost, and whether `lag-critical` allows that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.lag import (
    MOVING,
    QUIET,
    Histogram,
    Lag,
    LagCritical,
    LinkRate,
    OnItsWay,
    Passage,
    describe_lag,
    seconds_behind,
)
from agent.core.links.reconcile import needs_restart
from agent.core.model import LinkSettings
from tests.unit.core.some_links import exchange_link, queue_link, shovel_link


def looks(lag: Lag, begin: int, end: int) -> list[int]:
    """When a quiet link is looked at, observed once a second."""
    found = []
    for now in range(begin, end):
        lag.observe(float(now), confirmed=0, unsettled=0)
        if now >= lag.due_at:
            lag.asks(now)
            lag.counted(0)
            found.append(now)
    return found


def test_waiting_counts_from_the_last_confirm() -> None:
    lag = Lag(0.0, confirmed=5, chance=0.0)
    assert lag.observe(10.0, confirmed=5, unsettled=0) == 0
    assert lag.observe(11.0, confirmed=5, unsettled=3) == 0
    assert lag.observe(41.0, confirmed=5, unsettled=3) == 30
    assert lag.observe(42.0, confirmed=6, unsettled=2) == 0
    assert lag.observe(52.0, confirmed=6, unsettled=2) == 10
    assert lag.observe(53.0, confirmed=6, unsettled=0) == 0


def test_what_is_ready_upstream_waits_as_well() -> None:
    lag = Lag(0.0, confirmed=0, chance=0.0)
    lag.counted(7)
    lag.observe(1.0, confirmed=0, unsettled=0)
    assert lag.observe(21.0, confirmed=0, unsettled=0) == 20
    lag.forgive()
    assert lag.observe(22.0, confirmed=0, unsettled=0) == 0
    assert lag.observe(32.0, confirmed=0, unsettled=0) == 10


def test_what_was_ready_before_the_last_confirm_is_no_backlog_until_looked_at_again() -> None:
    lag = Lag(0.0, confirmed=0, chance=0.0)
    lag.counted(7)
    lag.observe(1.0, confirmed=7, unsettled=0)
    assert lag.observe(60.0, confirmed=7, unsettled=0) == 0
    lag.counted(3)
    lag.observe(61.0, confirmed=7, unsettled=0)
    assert lag.observe(71.0, confirmed=7, unsettled=0) == 10


def test_a_quiet_link_is_looked_at_soon_and_then_rarely() -> None:
    first, second, *later = looks(Lag(0.0, confirmed=0, chance=0.5), 0, 3000)
    assert 0 <= first <= MOVING
    assert 0 < second - first <= QUIET
    assert [after - before for before, after in zip([second, *later], later, strict=False)] == [QUIET] * len(later)
    assert len(later) >= 3


def test_links_that_began_together_are_looked_at_apart() -> None:
    seen = [looks(Lag(0.0, confirmed=0, chance=number / 60), 0, 160) for number in range(60)]
    busiest = max(sum(now in each for each in seen) for now in range(100, 160))
    assert busiest <= 4


def test_a_moving_link_is_looked_at_every_few_seconds() -> None:
    lag = Lag(0.0, confirmed=0, chance=0.0)
    looks(lag, 0, 100)
    found = []
    for now in range(100, 130):
        lag.observe(float(now), confirmed=now, unsettled=0)
        if now >= lag.due_at:
            lag.asks(now)
            found.append(now)
    assert len(found) == 30 / MOVING


def test_a_queue_that_nothing_is_taken_from_is_looked_at_again_soon() -> None:
    lag = Lag(0.0, confirmed=0, chance=1.0)
    lag.asks(0.0)
    lag.counted(0)
    assert lag.due_at > MOVING
    lag.expect_growth()
    assert lag.due_at == MOVING


def test_what_a_held_link_has_not_read_counts_once_its_prefetch_is_full() -> None:
    lag = Lag(0.0, confirmed=0, chance=1.0)
    assert lag.behind(3, prefetch=10) is None
    lag.counted(5)
    assert lag.behind(3, prefetch=10) == 8
    lag.is_held = True
    assert lag.behind(3, prefetch=10) == 15
    lag.counted(0)
    assert lag.behind(3, prefetch=10) == 3


def seen(*, ready: int = 0, underway: int = 0, taken: int = 0, prefetch: int = 10) -> Passage:
    return Passage(ready, underway, taken, prefetch)


def test_it_is_lost_where_nothing_waits_or_moves_twice_in_a_row() -> None:
    way = OnItsWay(b"it", 0.0)
    looks = (seen(), seen(underway=1), seen(), seen(ready=1), seen())
    assert not any(way.look(each) for each in looks)
    assert way.look(seen())


def test_it_is_not_lost_while_it_waits_however_long() -> None:
    way = OnItsWay(b"it", 0.0)
    assert not any(way.look(seen(ready=200 - number, underway=10, taken=number)) for number in range(190))


def test_it_is_not_lost_where_others_come_behind_it_all_the_time() -> None:
    way = OnItsWay(b"it", 0.0)
    assert not way.look(seen(ready=50, underway=10))
    assert not any(way.look(seen(ready=1000, underway=10, taken=number)) for number in range(60))


def test_it_is_lost_once_all_that_stood_before_it_has_come() -> None:
    way = OnItsWay(b"it", 0.0)
    assert not way.look(seen(ready=50, underway=10))
    assert way.look(seen(ready=1000, underway=10, taken=60))


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
    ("limit", "flow", "held", "described"),
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
    limit: LagCritical, flow: LinkRate, held: tuple[int, int], described: str
) -> None:
    assert describe_lag(limit, backlog=9_600, behind=197.4, flow=flow, held=held, is_auto=True).text == described


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
    shown = describe_lag(limit, backlog=9_600, behind=197.4, flow=flow, held=(unsettled, 10), is_auto=is_auto)
    assert (shown.is_catching_up, shown.is_at_prefetch) == expected


@pytest.mark.parametrize(
    ("growth", "more"),
    [(None, "out 47/s"), (-40.0, "catching up at 40/s, about 4 min left"), (153.0, "in 200/s, out 47/s")],
)
def test_a_rate_limit_that_holds_it_is_named(growth: float | None, more: str) -> None:
    shown = describe_lag(
        LagCritical(seconds=30),
        backlog=9_600,
        behind=197.4,
        flow=LinkRate(47.0, growth),
        held=(1, 10),
        is_auto=True,
        limited_by="47 messages/s",
    )
    assert shown.text == f"3 min 17 s behind (limit 30 s), held to its rate-limit of 47 messages/s: {more}"
    assert shown.is_limited


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


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 5))))
def test_each_bucket_counts_what_took_no_longer(observed: list[tuple[float, int]]) -> None:
    histogram = Histogram((0.1, 1.0, 5.0))
    for value, times in observed:
        histogram.observe(value, times)
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.cumulative, strict=True):
        assert count == sum(times for value, times in observed if value <= bound)


def test_two_of_the_same_bounds_are_added() -> None:
    one, other = Histogram((0.1, 1.0)), Histogram((0.1, 1.0))
    one.observe(0.05, 2)
    other.observe(0.5, 3)
    other.observe(7.0)
    one.add(other)
    assert list(one.cumulative) == [2, 5, 6]
    assert one.sum == 0.1 + 1.5 + 7.0
