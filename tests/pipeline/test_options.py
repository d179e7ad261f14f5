"""The options of the report: no Spark runs."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from agent.pipeline.options import OptionError, parse
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
