"""How much a flow reads: the messages that the broker may send ahead (`Window`), which change where another prefetch
suits the path better; and what it reads in a second, as its `rate-limit` asks for it (`Throttle`).

The connection that a limited flow reads from is held after a read until what came is paid for, so no other link may
read from it. A link is shown as limited while it is held, and shortly after: it may be held a hundred times in a
second.

Why: docs/decisions/0009-prefetch-by-new-consumer.md, docs/decisions/0061-limited-links-read-alone.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.amqp.data.publish_tracker import Counts, PublishTracker
from agent.amqp.wire.inbound import Inbound
from agent.core.links import read_limits
from agent.core.links.poison_search import Watch
from agent.core.links.read_limits import RateLimit, TokenBuckets
from agent.links.flow_options import FlowOptions, PathMemory

SMALL: Final = 1024.0
"""Bytes of a message, where none is known and a limit in bytes sets a prefetch that stays: of larger ones too many are
sent ahead until the next session, of much smaller ones too few for the limit to be reached on a long path."""


@dataclass(slots=True)
class _WindowProgress:
    """The messages and bytes that had come through when the prefetch was last looked at."""

    at: float
    messages: int
    bytes: int


class Window:
    """The prefetch of one flow. `current` is that of the consumer that exists, `prefetch` that of the next one."""

    __slots__ = (
        "_clock", "_counts", "_for_unpublishable", "_forwarded_before", "_held_before", "_most", "_options", "_path",
        "_progress", "current", "limit", "round_trip", "target",
    )  # fmt: skip

    def __init__(
        self,
        options: FlowOptions,
        path: PathMemory,
        counts: Counts,
        clock: Callable[[], float],
        *,
        for_unpublishable: int,
    ) -> None:
        """`for_unpublishable` places of the prefetch are kept for messages that are held and get nowhere."""
        self.current = 0
        self.round_trip = 0.0
        self.target: PublishTracker | None = None
        self._options = options
        self._path = path
        self._counts = counts
        self._clock = clock
        self.limit = options.rate_limit  # may be replaced while messages flow
        average_size = path.average_size or (SMALL if self._keeps_consumer else None)
        self._most = read_limits.LARGEST_PREFETCH if self.limit is None else self.limit.prefetch(average_size)
        self._for_unpublishable = for_unpublishable
        self._held_before = 0  # by former consumers of the flow, when the one that exists began
        self._forwarded_before = counts.forwarded
        self._progress = self._count(clock())

    @property
    def prefetch(self) -> int:
        """The prefetch of the next consumer; 0 if nothing is acknowledged."""
        if not self._options.acknowledges:
            return 0
        flowing = min(self._flowing, self._options.limit or read_limits.LARGEST_PREFETCH)
        return min(flowing + self._for_unpublishable, read_limits.LARGEST_PREFETCH)

    @property
    def affordable(self) -> int:
        """The prefetch that a consumer may begin with: a broker gives it as many places whatever former ones hold."""
        wanted = self.prefetch
        return max(1, min(wanted, read_limits.LARGEST_PREFETCH - self.unsettled)) if wanted else wanted

    def begin(self) -> None:
        """Note that there is a new consumer."""
        self.current, self._held_before = self.affordable, self._held_unpublishable

    @property
    def unsettled(self) -> int:
        """The number of messages that upstream has delivered and that are not settled."""
        return self.target.confirms.in_flight + self.target.confirms.held if self.target else 0

    @property
    def has_forwarded(self) -> bool:
        """True if anything came through since the flow began."""
        return self._counts.forwarded != self._forwarded_before

    @property
    def is_filled(self) -> bool:
        """True if messages that get nowhere take all places, and no more can be had."""
        is_largest = self._options.is_stream or self._for_unpublishable >= read_limits.MOST_HELD
        return is_largest and self._held_unpublishable - self._held_before >= self.current

    @property
    def is_single(self) -> bool:
        return self._path.poison_search.watch(self._clock()) is Watch.ONE_BY_ONE

    @property
    def _flowing(self) -> int:
        """The number of messages that may be on the way."""
        if self.is_single:
            return 1
        size = min(self._options.prefetch or self._path.prefetch, self._most, self._path.most_kept)
        return min(size, read_limits.CAREFUL) if self._is_careful else size

    @property
    def _keeps_consumer(self) -> bool:
        return self._options.is_stream or self._options.keeps_consumer

    @property
    def _is_careful(self) -> bool:
        return self._options.is_quorum and self._path.fruitless >= read_limits.FRUITLESS

    def learn(self, wanted: int) -> None:
        """Set the prefetch of the next consumer to `wanted`, also for the next session."""
        if wanted != self.prefetch:
            self._path.prefetch = wanted - self._for_unpublishable

    def better(self, now: float) -> int | None:
        """The prefetch to change to, if another suits what went through since the last call; None otherwise. Call it
        about once a second."""
        before, self._progress = self._progress, self._count(now)
        messages, octets = self._progress.messages - before.messages, self._progress.bytes - before.bytes
        if self._is_careful and self.has_forwarded:
            self._path.fruitless = 0
        if messages > 0:
            self._fit_limit(octets / messages)
        if not self._options.acknowledges or self._keeps_consumer:
            return None
        if self._make_room():
            return self.prefetch
        if messages <= 0 or self._held_unpublishable > read_limits.MOST_HELD:  # a new consumer would get as many again
            return None
        affordable = self.affordable
        if self.current != affordable and (affordable == self.prefetch or affordable >= 2 * self.current):
            return self.prefetch
        if self.current != self.prefetch:  # held ones leave no room for more
            return None
        is_fixed = self._options.prefetch or self._options.limit
        if is_fixed or self._is_careful or self.is_single:
            return None
        flowing = self.current - self._for_unpublishable
        wanted = read_limits.sized(
            flowing,
            unsettled=self.unsettled - self._held_unpublishable,
            rate=messages / max(now - before.at, 0.001),
            round_trip=self.round_trip,
            average_size=octets / messages,
        )
        wanted = min(wanted, self._most)
        # Less can't be had without disorder, see `Consumer`; reading is held where too much comes.
        if wanted == flowing or (self._options.is_quorum and wanted < flowing):
            return None
        return wanted + self._for_unpublishable

    def _fit_limit(self, average_size: float) -> None:
        """Fit the prefetch to the rate limit, in geometric steps. On a quorum queue it only grows, see `better`."""
        self._path.average_size = average_size
        most = read_limits.LARGEST_PREFETCH if self.limit is None else self.limit.prefetch(average_size)
        if self._options.is_quorum:
            most = max(most, self.current)
        if not most / 2 < self._most < most * 2:
            self._most = most

    @property
    def _held_unpublishable(self) -> int:
        return self.target.held_unpublishable if self.target else 0

    def _make_room(self) -> bool:
        """Reserve places for what is held and can't be published; return True if a larger prefetch is due, since these
        fill the current one.

        Where a consumer can only be changed while all of its prefetch is here, that is when nothing else moves.
        """
        self._for_unpublishable = read_limits.room_for(
            self._held_unpublishable, self._for_unpublishable, flowing=self._flowing
        )
        is_due = self.current < self.affordable and self._for_unpublishable > 0
        return is_due and (not self._options.is_quorum or self.unsettled >= self.current)

    def _count(self, now: float) -> _WindowProgress:
        return _WindowProgress(now, self._counts.forwarded + self.unsettled, self._counts.bytes)


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
