"""What docs/pipeline.md says about statuses and incidents, in plain Python: written from the document alone.

Lines are those of one group; moments are whole microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

ORDER = (
    "running", "blocked", "stalled", "starting", "backoff", "invalid", "paused", "terminated", "removing", "standby",
    "stopping",
)  # fmt: skip
FIVE_MINUTES = 300_000_000
STANDBY = "standby"
"""As its `link`, of a line on the group's standby."""
VERDICTS = ("promoted", "not_in_step", "in_step")
DOWN = {"starting", "backoff", "invalid"}
FAILED = {"backoff", "invalid"}
FLOWING = {"running", "blocked", "stalled"}

Span = tuple[int, int, str]
Report = tuple[int, int, str, bool | None]
Counts = tuple[int, int, int, int]
"""Taken, forwarded, given back, since the process started; and in flight."""


@dataclass(frozen=True, order=True)
class Said:
    """A line; `link` is empty if it is about the agent itself."""

    at: int
    seq: int
    agent: str
    link: str
    status: str
    sample: bool = False
    interval: int = 0
    process: str = ""
    counts: Counts | None = None
    """None if its agent doesn't count what it takes."""
    lag: bool | None = None
    """Whether it is critical, if that is known."""
    backlog: int | None = None
    moves_from: str | None = None


@dataclass(frozen=True)
class Life:
    begin: int
    last_line: int
    last: int
    until: int
    interval: int

    def holds(self, at: int) -> bool:
        return self.begin <= at < self.until or at == self.last_line == self.until


def timelines(lines: Iterable[Said], start: int, end: int) -> dict[str, list[Span]]:
    """Each link's statuses, from the start of the window to its end."""
    return {link: _combined(reports, start, end) for link, reports in _reports_on_links(lines, end).items()}


def standby(lines: Iterable[Said], start: int, end: int) -> list[Span]:
    """What the group's standby was, without the times in which nothing is known."""
    reports = _reports_on_links(lines, end).get(STANDBY, [])
    return [span for span in _combined(reports, start, end, VERDICTS) if span[2] != "unknown"]


def critical(lines: Iterable[Said], start: int, end: int) -> dict[str, int | None]:
    """For how long each link's lag was critical, for an agent whose status counts; None if that isn't known at all."""
    found: dict[str, int | None] = {}
    for link, reports in _reports_on_links(lines, end).items():
        known, spent = False, 0
        for since, until, status in _pieces(reports, start, end):
            said = [one for one in reports if one[0] <= since and one[1] >= until and one[2] == status]
            lags = [lag for *_, lag in said if lag is not None]
            if status in DOWN | FLOWING and lags:
                known, spent = True, spent + (until - since if any(lags) else 0)
        found[link] = spent if known else None
    return found


def _reports_on_links(lines: Iterable[Said], end: int) -> dict[str, list[Report]]:
    known = sorted(set(lines))
    agents = {
        one.agent: [*_lives([own for own in known if own.agent == one.agent and not own.link], end)] for one in known
    }
    return {
        link: [
            report
            for agent, lives in agents.items()
            for report in _reports([one for one in known if (one.agent, one.link) == (agent, link)], lives, end)
        ]
        for link in sorted({one.link for one in known if one.link})
    }


def _lives(own: list[Said], end: int) -> Iterator[Life]:
    groups: list[list[Said]] = []
    for before, this in pairwise([None, *own]):
        assert this is not None
        if (
            before is None
            or this.status == "started"
            or before.status == "stopped"
            or this.interval != before.interval
            or this.at - before.at > 3 * before.interval
        ):
            groups.append([])
        groups[-1].append(this)
    for group, after in pairwise([*groups, None]):
        assert group is not None
        last, stopped = group[-1].at, group[-1].status == "stopped"
        interval = max(one.interval for one in group)
        deadline = last if stopped else last + 3 * interval
        undecided = not stopped and after is None and deadline >= end
        until = deadline if after is None else min(deadline, after[0].at)
        yield Life(group[0].at, last, max(last, end) if undecided else last, until, interval)


def _reports(lines: list[Said], lives: list[Life], end: int) -> Iterator[Report]:
    sampled = False
    for this, after in pairwise([*lines, None]):
        assert this is not None
        sampled = sampled or this.sample
        life = next((one for one in reversed(lives) if one.holds(this.at)), None)
        following = None if after is None else next((one for one in reversed(lives) if one.holds(after.at)), None)
        patience = max(3 * (life.interval if life else 10_000_000), FIVE_MINUTES)
        if life is None:
            until = max(this.at, end) if after is None else after.at
            until = until if until - this.at <= patience else this.at
        elif after is not None and following == life:
            until = after.at
        else:
            until = max(this.at, life.last)
        yield this.at, this.at if sampled and until - this.at > patience else until, this.status, this.lag


def _pieces(reports: list[Report], start: int, end: int, order: Sequence[str] = ORDER) -> Iterator[Span]:
    moments = sorted({start, end, *(at for span in reports for at in span[:2] if start < at < end)})
    for since, until in pairwise(moments):
        held = {status for begin, finish, status, _ in reports if begin <= since and finish >= until}
        yield since, until, min(held, key=order.index, default="unknown")


def _combined(reports: list[Report], start: int, end: int, order: Sequence[str] = ORDER) -> list[Span]:
    spans: list[Span] = []
    for since, until, status in _pieces(reports, start, end, order):
        if spans and spans[-1][2] == status:
            spans[-1] = (spans[-1][0], until, status)
        else:
            spans.append((since, until, status))
    return spans


def incidents(spans: list[Span], merge_gap: int) -> list[tuple[int, int, int, int]]:
    """(start, end, time down, flaps): from a failure until the link is no longer down."""
    found: list[tuple[int, int, int, int]] = []
    failing, flowed = False, False
    for start, end, status in spans:
        if status not in DOWN:
            failing, flowed = False, flowed or status in FLOWING
        elif failing:
            begin, _, down, flaps = found[-1]
            found[-1] = (begin, end, down + end - start, flaps)
        elif status in FAILED:
            failing = True
            if found and start - found[-1][1] <= merge_gap:
                begin, _, down, flaps = found[-1]
                found[-1] = (begin, end, down + end - start, flaps + flowed)
            else:
                found.append((start, end, end - start, 0))
            flowed = False
    return found


@dataclass
class Account:
    """Of one link in one hour; in flight are those of all agents."""

    taken: int = 0
    forwarded: int = 0
    given_back: int = 0
    start: int = 0
    end: int = 0
    known: bool = True

    @property
    def row(self) -> tuple[int | None, ...]:
        if not self.known:
            return (None,) * 6
        unexplained = self.taken - self.forwarded - self.given_back - (self.end - self.start)
        return self.taken, self.forwarded, self.given_back, self.start, self.end, unexplained


def accounts(lines: Iterable[Said], hour: int) -> dict[tuple[str, int], tuple[int | None, ...]]:
    """Of a group's links by hour, from 0 on; the start of each agent was seen."""
    found: dict[tuple[str, int], Account] = {}
    last: dict[tuple[str, str], Said] = {}
    for one in sorted(set(lines), key=lambda one: (one.at, one.seq)):
        if not one.link:
            continue
        in_flight = sum(_counts(each)[3] for (link, _), each in last.items() if link == one.link)
        of_hour = found.setdefault((one.link, (one.at - 1) // hour), Account(start=in_flight, end=in_flight))
        before = last.get((one.link, one.agent))
        base, had = (0, 0, 0), _counts(before)[3]
        if before and before.process == one.process:
            base = _counts(before)[:3]
        else:
            of_hour.given_back += had
        now = _counts(one)
        of_hour.taken += now[0] - base[0]
        of_hour.forwarded += now[1] - base[1]
        of_hour.given_back += now[2] - base[2]
        of_hour.end += now[3] - had
        of_hour.known = of_hour.known and one.counts is not None
        last[one.link, one.agent] = one
    return {key: one.row for key, one in found.items()}


READING = frozenset({"running", "blocked"})


def moving(lines: Iterable[Said], length: int) -> dict[tuple[str, int], tuple[int | None, str | None]]:
    """Of a group's links by periods of this length, from 0 on: what waited when an agent that ran the link last
    said something of it, and where its messages come from."""
    found: dict[tuple[str, int], tuple[int | None, str | None]] = {}
    for one in sorted(set(lines), key=lambda one: (one.at, one.seq, one.agent)):
        if one.link:
            key = one.link, (one.at - 1) // length
            left, source = found.get(key, (None, None))
            found[key] = one.backlog if one.status in READING else left, one.moves_from or source
    return found


def _counts(line: Said | None) -> Counts:
    return (line and line.counts) or (0, 0, 0, 0)
