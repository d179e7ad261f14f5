"""Numbers and times as people read them."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from agent.pipeline.findings.model import Span, Which
from agent.pipeline.page import words
from agent.pipeline.page.words import Calendar
from agent.pipeline.tables.periods import micros

NARROW, HARD = "\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"), (0.25, "0.25 s"), (9.994, "9.99 s"), (45, "45 s"), (60, "1 min"), (119.6, "2 min"),
        (8040, "2 h 14 min"), (86_400, "1 d"), (86_400 + 59, "1 d"), (90_000, "1 d 1 h"), (34_000_000, "393 d 12 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float, told: str) -> None:
    assert words.duration(seconds) == told


@pytest.mark.parametrize(
    ("value", "told", "brief"),
    [
        (None, words.NOTHING, ""), (100.0, "100 %", "100"), (99.9999, "99.999 %", "99.9"), (99.94, "99.94 %", "99.9"),
        (98.76, "98.7 %", "98"), (0.0, "0 %", "0"), (0.04, "0.0 %", "0"),
    ],
)  # fmt: skip
def test_percentages_are_never_rounded_up(value: float | None, told: str, brief: str) -> None:
    assert (words.percent(value), words.brief_percent(value)) == (told, brief)


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0"), (12_345, f"12{NARROW}345"), (99_999, f"99{NARROW}999"), (7_812_441, f"7.81{HARD}M")],
)  # fmt: skip
def test_counts(number: float, told: str) -> None:
    assert words.count(number) == told


def test_spans_tell_a_day_once_and_seconds_where_they_matter() -> None:
    calendar = Calendar(ZoneInfo("Europe/Berlin"))

    def told(*moments: tuple[int, ...]) -> str:
        start, end = (micros(datetime(2026, *moment, tzinfo=UTC)) for moment in moments)  # type: ignore[misc,arg-type]
        return calendar.span(Span(start, end))

    assert told((11, 3, 13, 2), (11, 3, 13, 31)) == f"3 Nov 14:02{words.TO}14:31"
    assert told((11, 3, 22, 2), (11, 3, 23, 1)) == f"3 Nov 23:02{words.TO}4 Nov 00:01"
    assert told((11, 3, 13, 2, 5), (11, 3, 13, 2, 50)) == f"3 Nov 14:02:05{words.TO}14:02:50"
    assert calendar.whole(micros(datetime(2026, 7, 1, tzinfo=UTC))) == "1 Jul 2026 02:00 CEST"


def test_long_names_are_cut_and_still_told() -> None:
    made = words.name("x" * 400)
    assert f">{'x' * 59}…<" in made
    assert f'title="{"x" * 400}"' in made
    assert words.why(None, None) == "no reason reported"
    assert words.why("upstream_lost", None) == "upstream lost"


def test_other_kinds_than_exchanges_are_named() -> None:
    def told(kind: str | None, upstream: str | None) -> str:
        return re.sub(r"<[^>]*>", "", words.link(Which("g", "l", kind, "/", "orders", upstream, None, "here")))

    assert told("exchange", "eu-1") == told(None, "eu-1") == "orders from eu-1 to here"
    assert told("queue", "eu-1") == "queue orders from eu-1 to here"
    assert told("shovel", "") == "shovel orders to here"
