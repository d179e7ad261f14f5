"""The files that have been read, and their batches: only what this file names counts, and it is replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from agent.core.export_event import SCHEMA
from agent.pipeline.schema import CELL, DAY, MISSED_HEARTBEATS, NAMELESS
from agent.pipeline.window import Bounds

LAYOUT: Final = 5
"""The version of the data kept between runs; another version is not read but rebuilt."""
COMPACT_FROM: Final = 8  # batches; so a line is written again once for each factor of eight
COMPACT_TO: Final = 4_000_000  # kept lines of one batch


class InputFile(NamedTuple):
    """A file that has changed counts as another one; `modified` is in microseconds."""

    path: str
    length: int
    modified: int


@dataclass(frozen=True, slots=True)
class Content:
    """Numbers of lines read, rejected, and kept; the first and last instant of the kept ones, and the longest sample
    interval of an agent."""

    read: int = 0
    bad: int = 0
    later_schema: int = 0
    kept: int = 0
    first: int | None = None
    last: int | None = None
    interval: int | None = None

    def __add__(self, other: Content) -> Content:
        instants = [at for at in (self.first, self.last, other.first, other.last) if at is not None]
        return Content(
            self.read + other.read,
            self.bad + other.bad,
            self.later_schema + other.later_schema,
            self.kept + other.kept,
            min(instants, default=None),
            max(instants, default=None),
            max(self.interval or 0, other.interval or 0) or None,
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Files whose lines were thinned together."""

    number: int
    files: frozenset[InputFile]
    content: Content
    schema: int = SCHEMA
    """The latest schema of lines that was known when they were read."""

    def meets(self, other: Batch) -> bool:
        """True if both may hold lines of the same five minutes."""
        mine, theirs = self.content, other.content
        if mine.first is None or mine.last is None or theirs.first is None or theirs.last is None:
            return False
        return mine.first < theirs.last + CELL and theirs.first < mine.last + CELL


@dataclass(frozen=True, slots=True)
class ExistingTables:
    """The existing tables: what they were `made_of` besides lines, and their window. From `touched` on they are
    outdated: new lines have arrived, or a run is about to make them. During that run they are not `whole`.
    """

    made_of: str
    start: int
    end: int
    touched: int | None = None
    whole: bool = True

    def outdated_from(self, moment: int | None) -> ExistingTables:
        moments = [at for at in (self.touched, moment, self.end) if at is not None]
        return replace(self, touched=min(moments))


@dataclass(frozen=True, slots=True)
class Ledger:
    """Days before `settled` are represented by a few lines that are equivalent to all of theirs."""

    roots: frozenset[str] = frozenset()
    batches: tuple[Batch, ...] = ()
    tables: ExistingTables | None = None
    settled: int = 0
    settled_lines: int = 0

    @property
    def files(self) -> frozenset[InputFile]:
        return frozenset(file for batch in self.batches for file in batch.files)

    @property
    def next_number(self) -> int:
        return 1 + max((batch.number for batch in self.batches), default=0)

    def covers(self, roots: Iterable[str]) -> bool:
        """True if all directories that were read are still inputs: lines of a removed one can't be distinguished."""
        return self.roots <= frozenset(roots)

    def stale(self, present: frozenset[InputFile]) -> tuple[Batch, ...]:
        """Batches with a file that was rewritten, or incomplete when it was read, or with lines of a schema that an
        earlier version of this program rejected; only those of which all files still exist, possibly rewritten."""
        existing, changed = ({file.path for file in files} for files in (present, present - self.files))

        def is_stale(batch: Batch) -> bool:
            paths = {file.path for file in batch.files}
            was_rejected = batch.schema < SCHEMA and batch.content.later_schema > 0
            return (was_rejected or not paths.isdisjoint(changed)) and paths <= existing

        return tuple(filter(is_stale, self.batches))

    def replaced(self, gone: Sequence[Batch], new: Batch) -> Ledger:
        kept = [one for one in self.batches if one not in gone]
        first = sum((one.content for one in gone), new.content).first
        changed = replace(self, batches=(*kept, new), tables=self.tables and self.tables.outdated_from(first))
        last = changed.content().last
        reached = [0 if last is None else _day(last)] + ([] if first is None else [_day(first - changed.reach)])
        return replace(changed, settled=min(self.settled, *reached))

    def settled_before(self, moment: int) -> int:
        """The first day of which all lines are needed if the tables are made from that instant on."""
        return max(0, min(self.settled, moment // CELL // DAY))

    def batches_from(self, day: int) -> list[Batch]:
        """Batches with lines of that day or later; for day 0, all."""
        return [one for one in self.batches if not day or (one.content.last or 0) > day * DAY * CELL]

    def lines_since(self, moment: int) -> int:
        """The maximum number of lines needed if the tables are made from that instant on."""
        day = self.settled_before(moment)
        return sum(batch.content.kept for batch in self.batches_from(day)) + (self.settled_lines if day else 0)

    @property
    def reach(self) -> int:
        """The time before its own, in microseconds, for which a line can change results: it may show the agent's group,
        and so that the agent has lived since an earlier heartbeat, and that its lines counted until then."""
        return NAMELESS + 2 * max(CELL, MISSED_HEARTBEATS * (self.content().interval or 0))

    def is_current(self, made_of: str) -> bool:
        """True if tables made from this exist and nothing is new."""
        existing = self.tables
        return existing is not None and existing.made_of == made_of and existing.touched is None and existing.whole

    def outdated_since(self, made_of: str, within: Bounds) -> int:
        """The instant from which tables have to be made: earlier dates would not change."""
        existing = self.tables
        if existing is None or existing.made_of != made_of or existing.start != within.start:
            return within.start
        moment = existing.end if existing.touched is None else existing.touched
        return max(within.start, min(moment, within.end) - self.reach)

    def content(self) -> Content:
        return sum((batch.content for batch in self.batches), Content())

    def to_settle(self) -> int:
        """The first day that future lines can usually still affect; days before the first line need not be settled."""
        found = self.content()
        if found.first is None or found.last is None:
            return self.settled
        until = _day(found.last - self.reach)
        return until if until > max(self.settled, _day(found.first)) else self.settled

    def to_compact(self) -> list[list[Batch]]:
        """Groups of small batches that may become one each: what is read again is read batch by batch, and that is to
        be expected of recent days, and of lines that a later version can read.
        """
        groups: list[list[Batch]] = [[]]
        room = COMPACT_TO
        for batch in sorted(filter(self._may_be_compacted, self.batches), key=lambda one: one.content.first or 0):
            if batch.content.kept > room or (groups[-1] and groups[-1][0].schema != batch.schema):
                groups.append([])
                room = COMPACT_TO
            groups[-1].append(batch)
            room -= batch.content.kept
        return [group for group in groups if len(group) >= COMPACT_FROM]

    def _may_be_compacted(self, batch: Batch) -> bool:
        content = batch.content
        is_small = content.kept <= COMPACT_TO // COMPACT_FROM
        return is_small and not content.later_schema and content.last is not None and _day(content.last) < self.settled

    def compacted(self, group: Sequence[Batch], number: int) -> Ledger:
        """The ledger with one batch instead of these: nothing else changes."""
        files = frozenset[InputFile]().union(*(batch.files for batch in group))
        one = Batch(number, files, sum((batch.content for batch in group), Content()), group[0].schema)
        return replace(self, batches=(*(batch for batch in self.batches if batch not in group), one))

    def text(self) -> str:
        batches = [
            {
                "number": batch.number,
                "schema": batch.schema,
                "content": asdict(batch.content),
                "files": sorted(batch.files),
            }
            for batch in self.batches
        ]
        data = {
            "layout": LAYOUT,
            "standing": self.tables and asdict(self.tables),
            "settled": [self.settled, self.settled_lines],
            "roots": sorted(self.roots),
            "batches": batches,
        }
        return json.dumps(data, indent=1)


def _day(moment: int) -> int:
    """The day of the cell that contains it; no day before 1970 is settled."""
    return max(0, (moment - 1) // CELL // DAY)


def parse_ledger(text: str) -> Ledger:
    data: dict[str, Any] = json.loads(text)
    if data["layout"] != LAYOUT:
        return Ledger()
    batches = tuple(
        Batch(
            one["number"],
            frozenset(InputFile(*file) for file in one["files"]),
            Content(**one["content"]),
            one.get("schema", 1),  # layout 5 began without it
        )
        for one in data["batches"]
    )
    standing = data["standing"] and ExistingTables(**data["standing"])
    return Ledger(frozenset(data["roots"]), batches, standing, *data["settled"])
