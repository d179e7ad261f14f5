"""A switchover's notes on the standby about each queue, so that it goes on where it was interrupted, on any host."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.core.migration.objects import ObjectKey, queue_key
from agent.core.rules.names import SWITCHED
from agent.errors import PermanentError
from agent.management.changing import DeclaringClient
from agent.management.transport import MAX_ONE

DONE: Final = "done"
MOST: Final = MAX_ONE * 15 // 16
"""Bytes of the counts: what is larger can't be read again."""
_QUEUES: Final = "queues"
_COUNTED: Final = ("old", "there", "moved", "left", "taking")


@dataclass(slots=True)
class SwitchedQueue:
    """A queue as it is switched over: `old` are the copies that were there when it began, `there` what waited at the
    source then, `moved` what was moved behind the copies, and `kept` what is behind them, None until that is counted.
    Of the copies, `left` are to be taken out yet, and `taking` more may have been. One that `keeps` its copies has no
    counts of them."""

    key: ObjectKey
    old: int
    there: int = 0
    moved: int = 0
    kept: int | None = None
    left: int = 0
    taking: int = 0
    keeps: bool = False
    problem: str = ""

    @property
    def has_counts(self) -> bool:
        """False if nothing was or is to be done, so that it needs no note."""
        return any(getattr(self, name) for name in (*_COUNTED, "kept"))


@dataclass(slots=True)
class Switchover:
    """The queues of a switchover, done or planned. `inexact` are those that keep their copies or hold more messages
    than they should, with the reasons, and `stay` those of which messages are still at the source."""

    queues: list[SwitchedQueue] = field(default_factory=list)
    inexact: Mapping[ObjectKey, str] = field(default_factory=dict)
    stay: Mapping[ObjectKey, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        of_queues = [(each.key, each.problem) for each in self.queues if each.problem]
        return [
            *filter(None, [self.problem]),
            *(f"{key}: {problem}" for key, problem in (*of_queues, *self.stay.items())),
        ]


@dataclass(slots=True)
class SwitchRecord:
    """`queues` are None until copies are counted, and lack those without counts once they are read. `is_lost`: what was
    counted can't be read any more."""

    standby: DeclaringClient
    queues: list[SwitchedQueue] | None = None
    is_done: bool = False
    is_lost: bool = False
    _changes: int = 0
    _noted: int = 0
    _noting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def begin(self, expected: Iterable[SwitchedQueue]) -> None:
        """Nothing is known of an earlier switchover any more. `expected` is what will be noted at most. Raises
        BrokerError."""
        size = len(json.dumps([_as_json(each) for each in expected], ensure_ascii=False).encode())
        if size > MOST:
            raise PermanentError(
                f"a switchover notes the counts of all queues that hold messages, in {MOST // 1024:,} KiB, and these "
                f"are {size // 1024:,} KiB: let consumers empty some, and copies be trimmed, first"
            )
        await self.standby.set_global_parameter(SWITCHED, {})

    async def read(self) -> None:
        """Raises BrokerError."""
        found = await self.standby.global_parameter(SWITCHED)
        entries = found.get(_QUEUES) if isinstance(found, dict) else None
        self.is_done = isinstance(found, dict) and found.get(DONE) is True
        queues = [_from_json(each) for each in entries] if isinstance(entries, list) else [None]
        known = [each for each in queues if each is not None]
        self.queues = known if len(known) == len(queues) else None
        is_as_begun = found in ({}, [])  # brokers may show an empty object as an empty list
        self.is_lost = self.queues is None and not is_as_begun

    async def note(self, *, is_done: bool = False) -> None:
        """All as it is now. One who waits for another one's note needs none of its own if that has the same. Raises
        BrokerError."""
        self._changes += 1
        change = self._changes
        async with self._noting:
            if self._noted >= change:
                return
            now = self._changes
            queues = [_as_json(each) for each in self.queues or () if each.has_counts]
            await self.standby.set_global_parameter(SWITCHED, {_QUEUES: queues, DONE: is_done})
            self._noted = now


def _as_json(queue: SwitchedQueue) -> dict[str, Any]:
    numbers = {name: getattr(queue, name) for name in (*_COUNTED, "kept")}
    return {"vhost": queue.key.vhost, "queue": queue.key.name, **numbers, "keeps": queue.keeps}


def _from_json(entry: object) -> SwitchedQueue | None:
    """None for what `_as_json` didn't write."""
    if not isinstance(entry, dict):
        return None
    vhost, name, keeps, kept = (entry.get(each) for each in ("vhost", "queue", "keeps", "kept"))
    counts: list[Any] = [entry.get(each) for each in _COUNTED]
    is_counted = all(isinstance(each, int) and each >= 0 for each in (*counts, 0 if kept is None else kept))
    if not (is_counted and isinstance(vhost, str) and isinstance(name, str) and isinstance(keeps, bool)):
        return None
    old, there, moved, left, taking = map(int, counts)
    return SwitchedQueue(queue_key(vhost, name), old, there, moved, kept, left, taking, keeps)
