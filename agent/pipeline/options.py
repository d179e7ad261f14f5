"""What can be asked of the report, on whichever command line; needs no Spark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent.errors import AgentError


class OptionError(AgentError):
    """The command line can't be understood."""


@dataclass(frozen=True, slots=True)
class Options:
    """`start` and `end` bound the window; without them the data's own first and last line do.

    `streaming` looks for files again and again, or, where `every` is none, until all that are there have been read.
    """

    inputs: tuple[str, ...]
    output: str
    master: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    merge_gap: timedelta = timedelta(seconds=60)
    objectives: str | None = None
    format: str = "text"
    streaming: bool = False
    every: timedelta | None = None

    @property
    def is_whole(self) -> bool:
        """A window that the data bounds is everything there is; any other replaces its own dates."""
        return self.start is None and self.end is None


@dataclass(frozen=True, slots=True)
class _Trigger:
    every: timedelta | None


_AVAILABLE_NOW = "available-now"
_USUAL_TRIGGER = timedelta(seconds=60)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(f"report: {message} (--help tells more)")


def parse(arguments: Sequence[str]) -> Options:
    given = _parser().parse_args(arguments)
    start, end = (_placed(moment, given.timezone) for moment in (given.start, given.end))
    if start and end and start >= end:
        raise OptionError("report: --from has to be before --to")
    if given.trigger and not given.streaming:
        raise OptionError("report: --trigger goes with --streaming")
    return Options(
        tuple(directory for group in given.input for directory in group),
        given.output.rstrip("/"),
        given.master,
        start,
        end,
        given.timezone,
        timedelta(seconds=given.merge_gap),
        given.objectives,
        given.format,
        given.streaming,
        _USUAL_TRIGGER if given.trigger is None else given.trigger.every,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="federation-agent report",
        description="Turn status exports into tables of availability, traffic, incidents, objectives and edges.",
    )
    add = parser.add_argument
    add("--input", nargs="+", action="append", required=True, metavar="DIR", help="Trees that agents export into.")
    add("--output", required=True, metavar="DIR", help="Where tables, report.html and summary.json go.")
    add("--master", metavar="URL", help="The Spark to use; local[*] where none is given or set.")
    add("--from", dest="start", type=_moment, metavar="TIME", help="First instant: a date of the zone, or RFC 3339.")
    add("--to", dest="end", type=_moment, metavar="TIME", help="First instant no more looked at.")
    add("--timezone", type=_zone, default=ZoneInfo("UTC"), metavar="ZONE", help="Whose days and hours; UTC by default.")
    add("--merge-gap", type=_gap, default=60.0, metavar="SECONDS", help="Outages so close are one; 60 by default.")
    add("--objectives", metavar="FILE", help="What was promised, in YAML; else 99.9 %% of the time in 30 days.")
    add("--streaming", action="store_true", help="Stay, and bring the report up to date as files come.")
    add("--trigger", type=_trigger, metavar="WHEN", help="Seconds between looks, 60 by default; or available-now.")
    add("--format", choices=("text", "json"), default="text", help="What to print: a few words, or summary.json.")
    return parser


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 2026-01-31 or 2026-01-31T12:00:00Z") from error


def _placed(moment: datetime | None, zone: ZoneInfo) -> datetime | None:
    """Without an offset it is one of the zone's clock: a date's tables are replaced whole."""
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=zone)


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time zone; write Europe/Berlin, say") from error


def _trigger(text: str) -> _Trigger:
    if text == _AVAILABLE_NOW:
        return _Trigger(None)
    seconds = _gap(text)
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"give seconds from 1, or {_AVAILABLE_NOW}")
    return _Trigger(timedelta(seconds=seconds))


def _gap(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from error
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError("give seconds from 0")
    return seconds
