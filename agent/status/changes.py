"""Changes on the board, for those who follow it: `/api/events` and `/api/transitions`.

Why: docs/decisions/0051-readers-without-queues.md
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple, TypedDict

from agent.core.export_event import Reason
from agent.core.links.lifecycle import Status
from agent.core.model import Link, LinkKind
from agent.core.text import rfc3339
from agent.status.json_schema import Count, LinkId, Time

KEPT: Final = 2_000  # half a megabyte; an outage of a thousand links, and that it ended


class FeedChanges(NamedTuple):
    """Ids of links; the sender reads the board at that time, so it sends the latest state."""

    gone: tuple[str, ...]
    changed: tuple[str, ...]
    moved: tuple[str, ...]


@dataclass(eq=False)
class Feed:
    """The changes since a reader's last read: only ids, so that slow readers cost little."""

    _gone: dict[str, None] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)
    _moved: dict[str, None] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def change(self, link_id: str) -> None:
        self._changed[link_id] = None
        self._wake.set()

    def move(self, link_id: str) -> None:
        """The link's counters changed; this is sent at the end of the round."""
        self._moved[link_id] = None

    def flush(self) -> None:
        """End a round."""
        if self._moved:
            self._wake.set()

    def remove(self, link_id: str) -> None:
        self._changed.pop(link_id, None)
        self._moved.pop(link_id, None)
        self._gone[link_id] = None
        self._wake.set()

    def end(self) -> None:
        """There are no further changes."""
        self.ended = True
        self._wake.set()

    async def wait(self) -> None:
        await self._wake.wait()

    def take(self) -> FeedChanges:
        """Removed links come first: a link with the same id may exist again."""
        changes = FeedChanges(tuple(self._gone), tuple(self._changed), tuple(self._moved))
        self._wake.clear()
        for pending in (self._gone, self._changed, self._moved):
            pending.clear()
        return changes


class Transition(NamedTuple):
    """`status` is None where the link is gone, `previous` where it is new."""

    at: float
    link: Link
    cluster: str | None
    status: Status | None
    previous: Status | None
    reason: Reason
    error: str
    seq: int = 0


class RecentTransitions:
    """The last transitions of all links together, also of links that are gone."""

    def __init__(self) -> None:
        self._kept: deque[Transition] = deque(maxlen=KEPT)
        self._seq = 0

    def add(self, transition: Transition) -> None:
        self._seq += 1
        self._kept.append(transition._replace(seq=self._seq))

    def after(self, seq: int) -> list[Transition]:
        """The transitions with a greater number, oldest first. The numbers begin again with each process."""
        missing = min(len(self._kept), self._seq - seq) if seq <= self._seq else len(self._kept)
        return list(self._kept)[len(self._kept) - missing :] if missing else []


class TransitionView(TypedDict):
    seq: Count
    at: Time
    link: LinkId
    kind: LinkKind
    vhost: str
    name: str
    upstream: str
    upstream_cluster: str | None
    status: Annotated[Status | None, "Null where the link is gone."]
    previous: Annotated[Status | None, "Null where the link is new."]
    reason: Reason
    error: str | None


def transition_view(transition: Transition) -> TransitionView:
    link = transition.link
    return {
        "seq": transition.seq,
        "at": rfc3339(transition.at),
        "link": link.id,
        "kind": link.kind,
        "vhost": link.vhost,
        "name": link.name,
        "upstream": link.upstream,
        "upstream_cluster": transition.cluster,
        "status": transition.status,
        "previous": transition.previous,
        "reason": transition.reason,
        "error": transition.error or None,
    }
