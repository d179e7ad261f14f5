"""What a measure is given: the brokers, how much to do, and who has its turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.scene import Pair
from tests.bench.sides import Agent, Native, Side

SIDES: Final[tuple[Side, ...]] = (Native(), Agent())


@dataclass(frozen=True, slots=True)
class Bench:
    """`version` is the brokers'; `full` asks for the sizes that the targets are about. `sizes` and `replicas` are those
    of `scale`, where they are given."""

    pair: Pair
    version: tuple[int, ...]
    full: bool
    runs: int
    sizes: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()

    @property
    def is_recent(self) -> bool:
        """Some targets are higher for brokers of series 4."""
        return self.version >= (4,)

    def turns(self, runs: int | None = None, *, sides: Sequence[Side] = SIDES) -> Iterator[Side]:
        """Each side once a run, taking turns at going first."""
        for run in range(runs or self.runs):
            yield from sides if run % 2 == 0 else sides[::-1]
