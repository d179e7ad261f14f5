"""One tick a second for the work of links that depends on the clock: a timer for each of them would cost more than all
that work.

Links that share a connection must not wait for one among them, either. A broker stops reading a connection while a
queue behind one of its channels can't keep up, or has lost its majority, and what other links have published waits
behind that. So a connection on which confirms are late is sounded, and where the broker doesn't answer, the link with
the most in flight gets connections of its own.

Why: docs/decisions/0017-fair-shared-connections.md, docs/decisions/0045-one-tick.md
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog

from agent.amqp.connection_pool import Shared
from agent.amqp.wire.channel import Channel
from agent.amqp.wire.ends import STANDSTILL
from agent.core.model import Link
from agent.errors import Failure, FailureKind, TransientError
from agent.slices import in_slices
from agent.status.board import Board

LATE: Final = 2.0
PATIENCE: Final = 2.0
MOST_PATIENCE: Final = 60.0
FORGIVEN: Final = 300.0

log = structlog.get_logger()


class Sharer(Protocol):
    """A link that may share its connection to the downstream."""

    link: Link

    @property
    def local(self) -> Shared | None: ...

    @property
    def in_flight(self) -> int: ...

    def waits(self, now: float) -> float:
        """Seconds that the oldest message has waited for its confirm."""

    def dedicate_connections(self) -> None:
        """Share connections with no other link for a while."""


class Fairness:
    """Finds shared connections that one link holds up; `tick` is called once a second."""

    def __init__(self) -> None:
        self._soundings: dict[Shared, tuple[float, Channel]] = {}
        self._patience = PATIENCE
        self._acted_at = 0.0

    def tick(self, moving: Iterable[Sharer], now: float) -> None:
        """Check the shared connections. `moving` are at least all links with something in flight."""
        sharing: dict[Shared, list[Sharer]] = defaultdict(list)
        waiting: set[Shared] = set()
        for link in moving:
            local = link.local
            if local is None or local.users < 2 or local.connection.blocked is not None:
                continue
            sharing[local].append(link)
            if link.waits(now) >= LATE:
                waiting.add(local)
        for local in self._soundings.keys() - waiting:
            _, channel = self._soundings.pop(local)
            channel.leave()
        for local in waiting:
            self._sound(local, sharing[local], now)

    def _sound(self, local: Shared, links: Iterable[Sharer], now: float) -> None:
        """Open a channel to check the connection, as that needs nothing but a broker that reads."""
        if local.connection.is_closed:
            return
        if local not in self._soundings:
            self._soundings[local] = now, local.connection.wire.begin_channel()
            return
        since, channel = self._soundings[local]
        is_answered = channel.opened.done() and channel.opened.exception() is None
        if is_answered:
            channel.leave()
            del self._soundings[local]
        elif now - since >= self._patience:
            del self._soundings[local]
            self._separate(local, links, now)

    def _separate(self, local: Shared, links: Iterable[Sharer], now: float) -> None:
        """Give the link with the most in flight its own connection, and close the shared one. Where that doesn't help,
        because the whole broker is slow, it is done ever less often."""
        quiet = now - self._acted_at > FORGIVEN
        self._patience = PATIENCE if quiet else min(2 * self._patience, MOST_PATIENCE)
        self._acted_at = now
        slow = max(links, key=lambda link: link.in_flight)
        slow.dedicate_connections()
        what = f"{slow.link.kind} {slow.link.name!r} of vhost {slow.link.vhost!r}"
        message = (
            f"the broker stopped reading a connection that {local.users} links share: the link of {what} has "
            f"{slow.in_flight} messages unconfirmed and gets a connection of its own; look at the queues bound there"
        )
        log.warning("link set apart", link=slow.link.id, vhost=slow.link.vhost, name=slow.link.name, reason=message)
        local.connection.wire.abort(TransientError(message, facts=Failure(FailureKind.NOT_READING)))


EVERY: Final = 1.0
TASK: Final = "look after links every second"

log = structlog.get_logger()


class Ticking(Sharer, Protocol):
    def tick(self, now: float) -> bool:
        """True if something moved since the last tick, or is in flight."""


async def tick_links(links: Callable[[], Iterable[tuple[str, Ticking]]], board: Board) -> None:
    """Tick all links until cancelled; each link whose counts changed since the last second is reported to the board."""
    fairness = Fairness()
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + EVERY
        await asyncio.sleep(EVERY)
        if (late := loop.time() - due) > STANDSTILL:
            log.warning("the agent stood still", seconds=round(late, 1), advice="give it more CPU")
        with board.errors.catching(TASK):
            await _tick_once(links(), board, fairness)


async def _tick_once(links: Iterable[tuple[str, Ticking]], board: Board, fairness: Fairness) -> None:
    loop = asyncio.get_running_loop()
    moving: list[Ticking] = []
    async for link_id, link in in_slices(links):
        try:
            has_moved = link.tick(loop.time())
        except Exception as error:  # noqa: BLE001 - the trouble of one link must not stop all others
            board.errors.report(TASK, error, link=link_id)
        else:
            if has_moved:
                board.moved(link_id)
                moving.append(link)
    fairness.tick(moving, loop.time())
    board.tick()
