"""Decides how many messages the broker may send ahead, and when another prefetch suits the path better.

Why: docs/decisions/0009-prefetch-by-new-consumer.md
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.amqp.data.publish_tracker import Counts, PublishTracker
from agent.core.links import read_limits
from agent.core.links.poison_search import Watch
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
