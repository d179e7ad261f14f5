"""What is asked of the report, and the hours it is told by: no Spark runs."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from agent.core.links.lifecycle import Status
from agent.errors import ConfigurationError
from agent.pipeline.options import OptionError, parse
from agent.pipeline.schema import BUCKETS
from agent.pipeline.tables.objectives import Objective, ObjectiveKind, parse_objectives
from agent.pipeline.tables.periods import hours, micros
from agent.pipeline.window import Bounds
from tests.acceptance.command import federation_agent

NEEDED = ["--input", "a", "b", "--input", "c", "--output", "out/"]


def test_options() -> None:
    asked = parse([*NEEDED, "--from", "2026-01-01", "--to", "2026-01-02T03:00:00+03:00", "--timezone", "Asia/Kolkata"])
    assert (asked.inputs, asked.output) == (("a", "b", "c"), "out")
    assert (asked.start, asked.end) == (datetime(2025, 12, 31, 18, 30, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    assert (asked.zone, asked.merge_gap) == (ZoneInfo("Asia/Kolkata"), timedelta(seconds=60))


@pytest.mark.parametrize(
    ("period", "zone", "start", "end"),
    [
        ("yesterday", "UTC", datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 30, tzinfo=UTC)),
        ("yesterday", "Europe/Berlin", datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)),
        ("last-week", "UTC", datetime(2026, 3, 23, tzinfo=UTC), datetime(2026, 3, 30, tzinfo=UTC)),
        ("last-month", "UTC", datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
    ],
)
def test_periods(period: str, zone: str, start: datetime, end: datetime) -> None:
    now = datetime(2026, 3, 30, 4, tzinfo=UTC)  # a Monday
    asked = parse([*NEEDED, "--period", period, "--timezone", zone], now=now)
    assert (asked.start, asked.end) == (start, end)


def test_last_month_in_january() -> None:
    asked = parse([*NEEDED, "--period", "last-month"], now=datetime(2026, 1, 5, tzinfo=UTC))
    assert (asked.start, asked.end) == (datetime(2025, 12, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("more", "every"),
    [([], timedelta(seconds=60)), (["--trigger", "5"], timedelta(seconds=5)), (["--trigger", "available-now"], None)],
)
def test_a_stream(more: list[str], every: timedelta | None) -> None:
    asked = parse([*NEEDED, "--streaming", *more])
    assert (asked.streaming, asked.every) == (True, every)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--from", "yesterday"], "'yesterday' is not a time"),
        (["--timezone", "Berlin"], "'Berlin' is not a time zone"),
        (["--merge-gap", "-1"], "give seconds, at least 0"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "--from has to be before --to"),
        (["--period", "yesterday", "--from", "2026-01-02"], "--period is instead of --from and --to"),
        (["--period", "last-year"], "invalid choice"),
        (["--trigger", "60"], "--trigger needs --streaming"),
        (["--streaming", "--trigger", "0"], "give seconds, at least 1, or available-now"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_wrong_options(more: list[str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse([*NEEDED, *more])


def test_the_command_tells_in_one_line_what_is_missing() -> None:
    done = federation_agent("report")
    assert (done.status, len(done.errors)) == (2, 1)
    assert "--input, --output" in done.err


def test_objectives() -> None:
    found = parse_objectives("objectives: {a: {target: 99.9}, b: {target: 90, days: 7, within: 0.5}}", source="f")
    assert found == (Objective("a", 99.9), Objective("b", 90.0, 7, 0.5))
    assert [one.kind for one in found] == [ObjectiveKind.TIME, ObjectiveKind.MESSAGES]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("objectives: [", 1),
        ("[]", 1),
        ("objectives: {}", 1),
        ("objectives: {a: {target: 100}}", 1),
        ("objectives: {a: {target: 99, days: 0, within: -1, goal: 1}, b: 3}", 4),
        ("objectives: {a: {target: 99, within: .nan}, b: {target: 99, within: .inf}}", 2),
        ("objectives: {a: {target: 99, target: 90}, a: {target: 80}}", 2),
    ],
)
def test_wrong_objectives_are_told_at_once(text: str, problems: int) -> None:
    with pytest.raises(ConfigurationError) as told:
        parse_objectives(text, source="objectives.yaml")
    assert len(told.value.problems) == problems
    assert all(str(problem).startswith("objectives.yaml") for problem in told.value.problems)


@pytest.mark.parametrize(
    ("zone", "day", "length"),
    [
        ("UTC", date(2026, 3, 29), 24.0),
        ("Europe/Berlin", date(2026, 3, 29), 23.0),
        ("Europe/Berlin", date(2026, 10, 25), 25.0),
        ("Asia/Kolkata", date(2026, 3, 29), 24.0),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
    ],
)
def test_days_are_as_long_as_the_zone_says(zone: str, day: date, length: float) -> None:
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    within = Bounds(micros(noon - timedelta(days=2)) + 1, micros(noon + timedelta(days=2)))
    found = [*hours(within, ZoneInfo(zone))]
    assert sum(one.end - one.start for one in found if one.day == day) == length * 3600 * 1_000_000
    assert all(one.end == other.start for one, other in pairwise(found))
    assert (found[0].start, found[-1].end) == (within.start, within.end)


def test_every_status_of_a_link_has_a_bucket() -> None:
    assert set(BUCKETS) == {status.value for status in Status}
