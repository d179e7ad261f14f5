"""The options of the report, on any command line; needs no Spark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent.errors import AgentError


class OptionError(AgentError):
    """The command line is invalid."""


@dataclass(frozen=True, slots=True)
class LinkFilter:
    """The links that the page is about; `*` stands for any text. The tables hold all links."""

    links: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = (("links", self.links), ("upstreams", self.upstreams), ("groups", self.groups))
        return "; ".join(f"{name} {', '.join(patterns)}" for name, patterns in named if patterns)


USUAL_KEPT: Final = 2  # so that readers can go on while a run ends
MOST_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """`start` and `end` bound the window; the default is the first and the last line of the data. `streaming` looks for
    new files repeatedly, or, if `every` is None, until all existing files have been read.
    """

    inputs: tuple[str, ...]
    output: str
    master: str | None
    start: datetime | None
    end: datetime | None
    zone: ZoneInfo
    merge_gap: timedelta
    objectives: str | None
    format: str
    streaming: bool
    every: timedelta | None
    link_filter: LinkFilter
    csv: bool
    keep: int


_YESTERDAY, _LAST_WEEK, _LAST_MONTH = "yesterday", "last-week", "last-month"
_AVAILABLE_NOW = "available-now"
_USUAL_TRIGGER = timedelta(seconds=60)


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(f"report: {message} (see --help)")


def parse(arguments: Sequence[str], *, now: datetime | None = None) -> Options:
    given = parser().parse_args(arguments)
    if given.period is not None:
        if given.start or given.end:
            raise OptionError("report: --period is instead of --from and --to")
        today = (now or datetime.now(UTC)).astimezone(given.zone).date()
        given.start, given.end = (datetime.combine(day, time()) for day in _period(given.period, today))
    # A time without an offset is in the time zone; a date's tables are replaced as a whole.
    given.start, given.end = (
        at if at is None or at.tzinfo else at.replace(tzinfo=given.zone) for at in (given.start, given.end)
    )
    if given.start and given.end and given.start >= given.end:
        raise OptionError("report: --from has to be before --to")
    if given.trigger is not None and not given.streaming:
        raise OptionError("report: --trigger needs --streaming")
    given.inputs, given.output = tuple(given.inputs), given.output.rstrip("/")
    given.merge_gap = timedelta(seconds=given.merge_gap)
    given.every = (_USUAL_TRIGGER if given.trigger is None else given.trigger) or None  # None for `available-now`
    given.link_filter = LinkFilter(tuple(given.link), tuple(given.upstream), tuple(given.group))
    return Options(**{option.name: getattr(given, option.name) for option in fields(Options)})


def _period(name: str, today: date) -> tuple[date, date]:
    """The first day and the exclusive end of a named period; a week is from Monday to Sunday."""
    if name == _YESTERDAY:
        return today - timedelta(days=1), today
    if name == _LAST_WEEK:
        monday = today - timedelta(days=today.weekday())
        return monday - timedelta(days=7), monday
    first = today.replace(day=1)
    return (first - timedelta(days=1)).replace(day=1), first


def parser() -> argparse.ArgumentParser:
    made = _ArgumentParser(
        prog="federation-agent report",
        description="Turn status exports into tables of availability, traffic, incidents, objectives and edges.",
        epilog="Examples: federation-agent report --input var/status --output var/report --period yesterday",
    )
    add = made.add_argument
    exports = "Directories that agents export to."
    add("--input", dest="inputs", nargs="+", action="extend", required=True, metavar="DIR", help=exports)
    add("--output", required=True, metavar="DIR", help="Directory for tables, report.html and summary.json.")
    add("--master", metavar="URL", help="Spark master; local[*] if none is given or configured.")
    when = "Start of the window: a date in the time zone, or RFC 3339."
    add("--from", dest="start", type=_date_or_time, metavar="TIME", help=when)
    add("--to", dest="end", type=_date_or_time, metavar="TIME", help="End of the window (exclusive), likewise.")
    period = "Instead of --from and --to: the last whole day, week from Monday, or month, in the time zone."
    add("--period", choices=(_YESTERDAY, _LAST_WEEK, _LAST_MONTH), help=period)
    zone = "Time zone of days and hours; UTC by default."
    add("--timezone", dest="zone", type=_zone, default=ZoneInfo("UTC"), metavar="ZONE", help=zone)
    gap = "Outages at most this far apart are one; 60 by default."
    add("--merge-gap", type=_gap, default=60.0, metavar="SECONDS", help=gap)
    add("--objectives", metavar="FILE", help="Objectives in YAML; without it, 99.9 %% of the time in 30 days.")
    for name, what in (
        ("link", "links with this id, name or vhost/name"),
        ("upstream", "links from this upstream or its cluster"),
        ("group", "links of this group of agents"),
    ):
        add(
            f"--{name}", action="append", default=[], metavar="NAME",
            help=f"The page and summary.json are about {what} only; * stands for any text, and it can be repeated.",
        )  # fmt: skip
    add("--csv", action="store_true", help="Also write availability.csv, by day, and incidents.csv beside the page.")
    keep = "How many runs stay in _versions, the visible one included; 2 by default."
    add("--keep", type=_count, default=USUAL_KEPT, metavar="N", help=keep)
    add("--streaming", action="store_true", help="Keep running, and update the report as files arrive.")
    add("--trigger", type=_trigger, metavar="WHEN", help="Seconds between checks, 60 by default; or available-now.")
    add("--format", choices=("text", "json"), default="text", help="What to print: a short summary, or summary.json.")
    return made


def _date_or_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z") from error


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time zone; write for example Europe/Berlin") from error


def _trigger(text: str) -> timedelta:
    """The interval of a trigger; zero for `available-now`."""
    if text == _AVAILABLE_NOW:
        return timedelta()
    seconds = _gap(text)
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"give seconds, at least 1, or {_AVAILABLE_NOW}")
    return timedelta(seconds=seconds)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_KEPT:
        raise argparse.ArgumentTypeError(f"give a whole number from 1 to {MOST_KEPT}")
    return int(text)


def _gap(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from error
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError("give seconds, at least 0")
    return seconds
