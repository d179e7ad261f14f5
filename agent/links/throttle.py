"""Holds back what a flow reads, as its `rate-limit` asks for it.

The connection that it reads from is held after a read until what came is paid for, so no other link may read from it. A
link is shown as limited while it is held, and shortly after: it may be held a hundred times in a second.

Why: docs/decisions/0061-limited-links-read-alone.md
"""

from __future__ import annotations

import asyncio
from typing import Final

from agent.amqp.data.publish_tracker import Counts
from agent.amqp.wire.inbound import Inbound
from agent.core.links.read_limits import RateLimit, TokenBuckets

SHOWN_FOR: Final = 2.0
_UNLIMITED: Final = RateLimit()


class Throttle:
    """The rate limit of one flow, which may be changed while messages flow."""

    __slots__ = (
        "_acknowledges", "_counts", "_held_since", "_inbound", "_is_over", "_loop", "_reads_portions", "_released_at",
        "_timer", "buckets",
    )  # fmt: skip

    def __init__(
        self,
        inbound: Inbound,
        limit: RateLimit | None,
        counts: Counts,
        *,
        acknowledges: bool,
        former: TokenBuckets | None = None,
    ) -> None:
        """If messages are acknowledged, those that come while reading is held are counted: no more can come than the
        prefetch. `former` are the buckets of the flow before, which may have something to pay for."""
        self._inbound = inbound
        self._counts = counts
        self._acknowledges = acknowledges
        self._loop = asyncio.get_running_loop()
        self.buckets = former or TokenBuckets(limit or _UNLIMITED, self._loop.time())
        # More may be here than is sent ahead by the limit: where nothing is acknowledged, and after the limit changed.
        # Otherwise a read brings no more than the limit allows, and small portions would cost ten times as much.
        self._reads_portions = not acknowledges
        self._apply(limit)
        self._held_since: float | None = None
        self._released_at = -SHOWN_FOR
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    @property
    def is_held(self) -> bool:
        """True while the limit keeps the flow from reading."""
        return self._held_since is not None

    @property
    def shown(self) -> str:
        """The limit as text, if it has just held the flow; otherwise empty."""
        is_shown = self.is_held or self._loop.time() - self._released_at < SHOWN_FOR
        return str(self.buckets.limit) if is_shown else ""

    @property
    def held_for(self) -> float:
        """The seconds since the flow was held; 0 while it isn't."""
        return 0.0 if self._held_since is None else self._loop.time() - self._held_since

    def took(self, messages: int, octets: int) -> None:
        """Note what was read, and hold the connection until the next read is allowed."""
        self._hold(self.buckets.take(self._loop.time(), messages, octets))

    def change(self, limit: RateLimit | None) -> None:
        self._reads_portions = self._reads_portions or (limit or _UNLIMITED) != self.buckets.limit
        self._apply(limit)
        self._hold(self.buckets.pause(self._loop.time()))

    def end(self) -> None:
        """Hold nothing any more: answers of the broker have to be read."""
        self._is_over = True
        self._inbound.limit_portions(None)
        self._release()

    def _apply(self, limit: RateLimit | None) -> None:
        self.buckets.change(limit or _UNLIMITED, self._loop.time())
        self._inbound.limit_portions(limit.lump if limit is not None and self._reads_portions else None)

    def _hold(self, pause: float) -> None:
        if pause <= 0 or self._is_over:
            self._release()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(pause, self._release)
        if self._held_since is None:
            self._held_since = self._loop.time()
            self._inbound.hold(self, counts=self._acknowledges)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held_since is not None:
            self._counts.limited_seconds += self.held_for
            self._held_since, self._released_at = None, self._loop.time()
            self._inbound.release(self)
