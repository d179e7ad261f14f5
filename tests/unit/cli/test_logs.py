"""The log as programs and people read it."""

from __future__ import annotations

import io
import json
import logging
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.logs import FEW, PERIOD, Repeats, RepeatsDropped, configure_logging
from agent.core.settings import LogFormat, LogLevel, LogSettings

SECRET = "s3ntinel"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Full(io.StringIO):
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, raises = logging.getLogger(), logging.raiseExceptions
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    structlog.reset_defaults()
    root.handlers, logging.raiseExceptions = handlers, raises
    root.setLevel(level)


def configured(
    format_: LogFormat = LogFormat.JSON, level: LogLevel = LogLevel.INFO, stream: io.StringIO | None = None
) -> io.StringIO:
    stream = io.StringIO() if stream is None else stream
    configure_logging(LogSettings(format_, level), stream)
    return stream


def records(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(password: str) -> None:
    raise ValueError(f"{len(password)} characters\nin two lines")


def test_an_event_is_a_line_with_its_time_in_utc() -> None:
    stream = configured()
    structlog.get_logger().info("link changed", link="0123abcd", error="a\nb: ü")
    [record] = records(stream)
    assert list(record) == ["timestamp", "level", "event", "link", "error"]
    assert record["timestamp"].endswith("Z")
    assert abs(datetime.fromisoformat(record["timestamp"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert (record["level"], record["link"], record["error"]) == ("info", "0123abcd", "a\nb: ü")


@pytest.mark.parametrize("format_", [LogFormat.JSON, LogFormat.CONSOLE])
def test_a_crash_is_told_without_the_values_of_variables(format_: LogFormat) -> None:
    stream = configured(format_)
    try:
        fail(SECRET)
    except ValueError as error:
        structlog.get_logger().error("unexpected error", exc_info=error)
    text = stream.getvalue()
    assert "in two lines" in text
    assert SECRET not in text
    if format_ is LogFormat.JSON:
        [record] = records(stream)
        [exception] = record["exception"]
        assert (exception["exc_type"], exception["frames"][-1]["name"]) == ("ValueError", "fail")


@pytest.mark.parametrize("format_", [LogFormat.JSON, LogFormat.CONSOLE])
def test_nothing_moves_a_terminal(format_: LogFormat) -> None:
    stream = configured(format_)
    hostile = "\x1b[2Jevil\u202e\n"
    structlog.get_logger().info(hostile, error=hostile, names=[hostile], **{hostile: 1})
    logging.getLogger("asyncio").error("%s", hostile)
    structlog.get_logger().error("unexpected error", exc_info=ValueError(hostile))
    text = stream.getvalue()
    assert text.count("evil") >= 6
    assert not set("\x1b\u202e") & set(text)
    assert text.count("\n") == 3 or format_ is LogFormat.CONSOLE  # a traceback is read in lines


def test_an_event_for_people_is_one_line() -> None:
    stream = configured(LogFormat.CONSOLE)
    structlog.get_logger().info("link changed", error="a\n2026-01-01 [info] forged")
    assert stream.getvalue().count("\n") == 1


def test_what_libraries_log_is_an_event_as_well() -> None:
    stream = configured()
    logging.getLogger("asyncio").error("Task %s was never retrieved", "x")
    logging.getLogger("asyncio").info("said to those who ask")
    structlog.get_logger().info("said too")
    told = [(record["level"], record["event"]) for record in records(stream)]
    assert told == [
        ("error", "Task x was never retrieved"),
        ("info", "said to those who ask"),
        ("info", "said too"),
    ]


@pytest.mark.parametrize(
    ("format_", "stream", "as_json"),
    [
        (LogFormat.AUTO, io.StringIO(), True),
        (LogFormat.AUTO, Terminal(), False),
        (LogFormat.CONSOLE, io.StringIO(), False),
        (LogFormat.JSON, Terminal(), True),
    ],
)
def test_auto_is_for_people_on_a_terminal(format_: LogFormat, stream: io.StringIO, as_json: bool) -> None:
    configured(format_, stream=stream)
    structlog.get_logger().info("started")
    assert stream.getvalue().startswith("{") is as_json
    assert ("\x1b[" in stream.getvalue()) is (format_ is LogFormat.AUTO and not as_json)


def test_a_level_keeps_what_is_below_it_out() -> None:
    stream = configured(level=LogLevel.WARNING)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [record["event"] for record in records(stream)] == ["loud"]


def test_a_log_that_cannot_be_written_harms_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    configured(stream=Full())
    structlog.get_logger().info("started")
    assert capsys.readouterr().err == ""


def test_remembering_thousands_of_long_records_takes_few_bytes() -> None:
    drop = RepeatsDropped(lambda: 0.0)
    tracemalloc.start()
    for number in range(5_000):
        drop(None, "info", {"event": "link changed", "link": f"{number}", "error": f"{number} " * 100})
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 2_000_000


def test_what_repeats_is_said_a_few_times_and_then_once_in_a_while() -> None:
    now = 0.0
    drop = RepeatsDropped(lambda: now)
    said: list[dict[str, Any]] = []

    def log(**event: Any) -> None:
        with suppress(structlog.DropEvent):
            said.append(dict(drop(None, "warning", {"event": "link changed", **event})))

    for turn in range(50):
        log(link="a", status="backoff", error="; ".join(sorted(("x is away", "y is away"), reverse=turn % 2 == 0)))
        log(link="a", status="running")
    assert len(said) == 2 * FEW
    log(link="b", status="running")
    assert said[-1]["link"] == "b"
    now = PERIOD
    log(link="a", status="running")
    assert (said[-1]["link"], said[-1]["repeated"]) == ("a", 50 - FEW)
    log(link="a", status="running")
    assert len(said) == 2 * FEW + 2


def test_a_few_are_said_and_then_one_a_period_with_their_number() -> None:
    repeats = Repeats(few=3, period=300, most=10)
    heard = [repeats.count("a", now) for now in range(1000)]
    said = {now: unsaid for now, unsaid in enumerate(heard) if unsaid is not None}
    assert said == {0: 0, 1: 0, 2: 0, 300: 297, 600: 299, 900: 299}


def test_something_else_is_said_at_once() -> None:
    repeats = Repeats(few=1, period=300, most=10)
    assert [repeats.count(what, 0) for what in "aabab"] == [0, None, 0, None, None]


def test_what_was_quiet_for_long_is_new() -> None:
    repeats = Repeats(few=2, period=300, most=10)
    assert [repeats.count("a", now) for now in (0, 400, 401, 402)] == [0, 0, 0, None]


@given(st.lists(st.integers(0, 20)))
def test_it_remembers_no_more_than_it_may(heard: list[int]) -> None:
    repeats = Repeats(few=1, period=300, most=5)
    for number, what in enumerate(heard):
        repeats.count(what, number)
    assert sum(deepcopy(repeats).count(each, len(heard)) is None for each in range(21)) <= 5
