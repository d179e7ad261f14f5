"""Which files have been read, and what they became: the one file that says what counts, replaced at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from agent.pipeline.inputs import InputFile

LAYOUT: Final = 3
"""Of what is kept between two runs; another one is not read but made anew."""


@dataclass(frozen=True, slots=True)
class Content:
    """How many lines were read, were no good, are kept of the good ones; and these' first and last instant."""

    read: int = 0
    bad: int = 0
    later_schema: int = 0
    kept: int = 0
    first: int | None = None
    last: int | None = None

    def __add__(self, other: Content) -> Content:
        instants = [at for at in (self.first, self.last, other.first, other.last) if at is not None]
        return Content(
            self.read + other.read,
            self.bad + other.bad,
            self.later_schema + other.later_schema,
            self.kept + other.kept,
            min(instants, default=None),
            max(instants, default=None),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Files whose lines were thinned together."""

    number: int
    files: frozenset[InputFile]
    content: Content


@dataclass(frozen=True, slots=True)
class Ledger:
    """`tables` tells what the tables that stand were made of; none while they are being made."""

    roots: frozenset[str] = frozenset()
    batches: tuple[Batch, ...] = ()
    tables: str | None = None

    @property
    def files(self) -> frozenset[InputFile]:
        return frozenset(file for batch in self.batches for file in batch.files)

    @property
    def next_number(self) -> int:
        return 1 + max((batch.number for batch in self.batches), default=0)

    def covers(self, roots: Iterable[str]) -> bool:
        """What was read from a tree that is no more asked for can't be told from the rest."""
        return self.roots <= frozenset(roots)

    def stale(self, present: frozenset[InputFile]) -> tuple[Batch, ...]:
        """Those with a file that has been written again, or was not whole when it was read."""
        paths = {file.path for file in present - self.files}
        return tuple(batch for batch in self.batches if any(file.path in paths for file in batch.files))

    def replaced(self, gone: Sequence[Batch], new: Batch) -> Ledger:
        return replace(self, batches=(*(one for one in self.batches if one not in gone), new), tables=None)

    def content(self) -> Content:
        return sum((batch.content for batch in self.batches), Content())

    def text(self) -> str:
        batches = [
            {
                "number": batch.number,
                "content": asdict(batch.content),
                "files": [[file.path, file.length, file.modified] for file in sorted(batch.files)],
            }
            for batch in self.batches
        ]
        return json.dumps(
            {"layout": LAYOUT, "tables": self.tables, "roots": sorted(self.roots), "batches": batches}, indent=1
        )


def parse_ledger(text: str) -> Ledger:
    told: dict[str, Any] = json.loads(text)
    if told["layout"] != LAYOUT:
        return Ledger()
    batches = tuple(
        Batch(one["number"], frozenset(InputFile(*file) for file in one["files"]), Content(**one["content"]))
        for one in told["batches"]
    )
    return Ledger(frozenset(told["roots"]), batches, told["tables"])
