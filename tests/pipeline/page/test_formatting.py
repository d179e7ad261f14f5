"""Numbers and times as people read them."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from agent.pipeline.findings.model import LinkIdentity
from agent.pipeline.page import formatting
from agent.pipeline.page.formatting import Calendar
from agent.pipeline.window import Bounds, micros

NARROW, HARD = "\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"), (0.000_14, "0.14 ms"), (0.012, "12 ms"),
        (0.25, "0.25 s"), (9.994, "9.99 s"), (45, "45 s"), (60, "1 min"), (119.6, "2 min"),
        (8040, "2 h 14 min"), (86_400, "1 d"), (86_400 + 59, "1 d"), (90_000, "1 d 1 h"), (34_000_000, "393 d 12 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float, told: str) -> None:
    assert formatting.duration(seconds) == told.replace(" ", HARD)


@pytest.mark.parametrize(
    ("value", "told", "brief"),
    [
        (None, formatting.NOTHING, ""), (100.0, "100 %", "100"), (99.9999, "99.999 %", "99.9"),
        (99.94, "99.94 %", "99.9"), (98.76, "98.7 %", "98"), (0.0, "0 %", "0"), (0.04, "0.0 %", "0"),
    ],
)  # fmt: skip
def test_percentages_are_never_rounded_up(value: float | None, told: str, brief: str) -> None:
    assert (formatting.percent(value), formatting.brief_percent(value)) == (told.replace(" ", HARD), brief)


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0"), (12_345, f"12{NARROW}345"), (99_999, f"99{NARROW}999"), (7_812_441, f"7.81{HARD}M"),
     (999_700, f"1{HARD}M"), (2_170_000_000, f"2.17{HARD}G"), (1.52e12, f"1.52{HARD}T"),
     (1.52e16, f"15{NARROW}200{HARD}T")],
)  # fmt: skip
def test_counts(number: float, told: str) -> None:
    assert formatting.count(number) == told


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.4, "0.4"), (14.44, "14.4"), (999.6, f"1{NARROW}000"), (1000.0, f"1{NARROW}000"), (0.000_2, "<0.01")],
)
def test_rates(value: float, shown: str) -> None:
    assert formatting.rate(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(10.0, "10"), (2.26, "2.3"), (0.083, "0.083"), (0.001, "<0.01")])
def test_days(value: float, shown: str) -> None:
    assert formatting.days(value) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0"), (1, "<0.01"), (5400, "1.5"), (54_000, "15")])
def test_link_hours(seconds: float, shown: str) -> None:
    assert formatting.link_hours(seconds) == shown


@pytest.mark.parametrize(
    ("part", "shown"), [(0, "0 %"), (1e-6, "<0.001 %"), (0.25, "0.250 %"), (3.14159, "3.14 %"), (100, "100 %")]
)
def test_shares_are_never_rounded_down_to_nothing(part: float, shown: str) -> None:
    assert formatting.share(part, 100) == shown.replace(" ", HARD)


@pytest.mark.parametrize(
    ("start", "end", "names"),
    [
        ((2026, 10, 24, 10, 20), (2026, 10, 24, 12, 20), ["12:30", "13:00", "13:30", "14:00"]),
        ((2026, 10, 20, 5), (2026, 10, 27, 5), ["22 Oct", "24 Oct", "26 Oct"]),
        ((2026, 1, 15), (2026, 12, 15), ["Mar 2026", "May 2026", "Jul 2026", "Sep 2026", "Nov 2026"]),
    ],
)
def test_ticks_are_at_the_times_they_name(start: tuple[int, ...], end: tuple[int, ...], names: list[str]) -> None:
    calendar = Calendar(ZoneInfo("Europe/Berlin"))
    steps = [micros(datetime(*moment, tzinfo=UTC)) for moment in (start, end)]  # type: ignore[misc,arg-type]
    ticks = calendar.ticks(Bounds(*steps), 5)
    assert [name for _, name in ticks] == names
    assert all(f"{calendar.at(moment):%H:%M}" == name for moment, name in ticks if ":" in name)
    assert all(calendar.at(moment).hour == 0 for moment, name in ticks if ":" not in name)


def test_spans_tell_a_day_once_and_seconds_where_they_matter() -> None:
    calendar = Calendar(ZoneInfo("Europe/Berlin"))

    def told(*steps: tuple[int, ...]) -> str:
        start, end = (micros(datetime(2026, *moment, tzinfo=UTC)) for moment in steps)  # type: ignore[misc,arg-type]
        return calendar.span(Bounds(start, end))

    assert told((11, 3, 13, 2), (11, 3, 13, 31)) == f"3 Nov 14:02{formatting.TO}14:31"
    assert told((11, 3, 22, 2), (11, 3, 23, 1)) == f"3 Nov 23:02{formatting.TO}4 Nov 00:01"
    assert told((11, 3, 13, 2, 5), (11, 3, 13, 2, 50)) == f"3 Nov 14:02:05{formatting.TO}14:02:50"
    assert calendar.date_and_time(micros(datetime(2026, 7, 1, tzinfo=UTC))) == "1 Jul 2026 02:00 CEST"


def test_long_names_are_cut_and_still_told() -> None:
    made = formatting.name("x" * 400)
    assert f">{'x' * 59}…<" in made
    assert f'title="{"x" * 400}"' in made
    assert formatting.why(None, None) == "no reason reported"
    assert formatting.why("upstream_lost", None) == "upstream lost"


def test_other_kinds_than_exchanges_are_named() -> None:
    def told(kind: str | None, upstream: str | None) -> str:
        return re.sub(
            r"<[^>]*>", "", formatting.link(LinkIdentity("g", "l", kind, "/", "orders", upstream, None, "here"))
        )

    assert told("exchange", "eu-1") == told(None, "eu-1") == "orders from eu-1 to here"
    assert told("queue", "eu-1") == "queue orders from eu-1 to here"
    assert told("shovel", "") == "shovel orders to here"
