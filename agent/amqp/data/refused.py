"""Messages that the downstream doesn't take: what it refused by basic.nack is published again, from memory, without
returning it to its source; what can't be published at all goes back later.

A refused message that there is no room for stays unacknowledged, and goes back to its source to come again, a few
messages at a time. What never gets through although others do is handed over, for the quarantine.

Why: docs/decisions/0012-keep-until-confirmed.md, docs/decisions/0013-refused-stay-at-source.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.data.held import HeldBuffers, Publish
from agent.amqp.data.prepared import PUBLISH
from agent.amqp.data.quarantined import Captured
from agent.amqp.wire import frames, methods
from agent.amqp.wire.ends import one_line
from agent.amqp.wire.properties import Properties
from agent.amqp.wire.tables import CodecError, short_string
from agent.core.links.refusals import COMES_BACK_WITHIN, SPARINGLY, Refusals
from agent.core.rules.headers import DELIVERY_COUNT
from agent.core.rules.quarantine import QuarantineReason

RETURNS_MARK: Final = short_string(DELIVERY_COUNT)
_RETURNS: Final = Names(DELIVERY_COUNT)
_UNKNOWN: Final = b"", 0
_INTEGERS: Final = frozenset({b"b", b"B", b"s", b"u", b"I", b"i", b"l", b"L"})
BUSY: Final = 0.05  # until it is tried again to publish while a large message is being written
LOOK_EVERY: Final = 1.0
MOST_RETURNS: Final = 10
"""Brokers from 4.0 on drop a message of a quorum queue that came back 20 times, unless configured otherwise."""

Later = Callable[[float, Callable[[], None]], object]


def _nothing(*_: object) -> None:
    pass


def _never() -> bool:
    return False


class Refused:
    """Does with the refused messages of one channel what `Refusals` decides, and keeps copies of them as long as there
    is room."""

    __slots__ = (
        "_clock", "_copies", "_found", "_give_back", "_held", "_is_released", "_later", "_looked_at", "_may_publish",
        "_noted", "_publish", "_refusals", "_size", "_wakes_at", "counts_returns", "hand_over", "on_counted_return",
    )  # fmt: skip

    def __init__(
        self,
        held: HeldBuffers,
        refusals: Refusals,
        *,
        publish: Callable[[bytes, int], None],
        may_publish: Callable[[], bool],
        give_back: Callable[[list[int]], None],
        later: Later,
        clock: Callable[[], float],
    ) -> None:
        """`publish` writes frames that end with the publish of this number; it is called only while `may_publish`
        returns True. `give_back` returns deliveries to their source. `hand_over`, set later, returns True if it took a
        message."""
        self.hand_over: Callable[[Captured], bool] | None = None
        self.counts_returns = False  # whether the source drops what came back too often
        self.on_counted_return: Callable[[], None] | None = (
            None  # before messages go back of which each return is counted
        )
        self._held = held
        self._refusals = refusals
        self._publish = publish
        self._may_publish = may_publish
        self._give_back = give_back
        self._later = later
        self._clock = clock
        self._copies: dict[int, Publish] = {}  # by tag
        self._size = 0
        self._noted = 0  # of the room's
        self._wakes_at = inf
        self._is_released = False
        self._found: tuple[float, bytes] | None = None  # the oldest, as it was looked for last
        self._looked_at = 0.0

    @property
    def count(self) -> int:
        """The number of refused messages that wait or are published again."""
        return self._refusals.count(self._clock())

    @property
    def waiting(self) -> int:
        """The number of refused messages that wait here."""
        return self._refusals.waiting

    @property
    def has_waiting(self) -> bool:
        return self._refusals.has_waiting

    @property
    def oldest(self) -> float | None:
        """The time when the message that has waited longest was first refused; None if none waits."""
        oldest = self._oldest
        return None if oldest is None else oldest[0]

    @property
    def where(self) -> str:
        """The destination of the message that has waited longest, as text; empty if it isn't known."""
        oldest = self._oldest
        if oldest is None or not oldest[1]:
            return ""
        call = methods.decode(oldest[1][frames.PREFIX.size : -1])
        exchange, key = one_line(call["exchange"]), one_line(call["routing_key"])
        return f"to exchange {exchange!r} with key {key!r}" if exchange else f"to queue {key!r}"

    @property
    def _oldest(self) -> tuple[float, bytes] | None:
        """The refused message that has waited longest: when it was first refused, and its address. It is looked for at
        most once a second: there may be thousands."""
        now = self._clock()
        if self._found is None or now - self._looked_at >= LOOK_EVERY:
            self._found, self._looked_at = self._refusals.oldest, now
        return self._found

    def owns(self, tag: int) -> bool:
        return tag in self._copies

    def take(self, number: int, tag: int) -> None:
        """Take over a publish that was refused."""
        if self._is_released:  # answers come until the channel is closed; then the source requeues it
            return
        now = self._clock()
        if self.owns(tag):
            is_hopeless = self._refusals.refused_again(number, now)
        elif self._keep(number, tag):
            copy = self._copies[tag]
            is_hopeless = self._refusals.keep(number, tag, copy.prepared[PUBLISH], len(copy.frames), now=now)
            is_hopeless = is_hopeless or (self.counts_returns and _comes_too_often(copy))
        else:
            is_hopeless = False
            known = (self._held.known(number) or _UNKNOWN) if self._held.room.note() else None
            self._refusals.leave_unacknowledged(number, tag, known, now)
            self._noted = self._refusals.noted
        if is_hopeless:
            self._give_up(tag)
        self._arm(now)

    def published(
        self, first: int, tags: Sequence[int], known: Sequence[tuple[bytes, ...]], came_again: list[int]
    ) -> None:
        """Find refused messages among these deliveries, which were published with numbers from `first` on; `came_again`
        are those that were redelivered."""
        if not came_again or not self._refusals.expects:
            return
        others, now = set(came_again), self._clock()
        for number, (tag, prepared) in enumerate(zip(tags, known, strict=True), start=first):
            if tag in others:
                self._refusals.came_again(number, prepared[PUBLISH], now)

    def confirmed(self, count: int) -> None:
        """Record that so many publishes were confirmed since the last call, including those that were published
        again."""
        self._refusals.confirmed_since += count
        if not count or self._is_released or not self._refusals.is_busy:
            return
        now, before = self._clock(), self._refusals.wakes_at
        arrived = self._refusals.confirmed(count, now)
        self._drop(arrived, now)
        if arrived and self._refusals.is_busy:
            self._try(now)
        elif self._refusals.wakes_at < before:  # otherwise each read would set a timer while it can't be published
            self._arm(now)

    def quarantine_done(self, tag: int) -> None:
        """Forget a message: it is in the quarantine."""
        now = self._clock()
        self._refusals.forget(tag)
        self._drop([tag], now)
        self._arm(now)

    def quarantine_failed(self, tag: int) -> None:
        """Let a message wait again: it could not be put into the quarantine."""
        now = self._clock()
        self._refusals.wait_on(tag, now)
        self._arm(now)

    def release(self) -> None:
        """Publish nothing again, and keep nothing."""
        self._is_released = True
        self._drop(list(self._copies), self._clock())
        self._refusals.release()  # a timer may hold this one for minutes
        self._gone([])
        self._held.release()

    def let_go(self) -> None:
        """After `release`: keep nothing else in memory."""
        self._publish, self._give_back, self._may_publish = _nothing, _nothing, _never
        self.hand_over = self.on_counted_return = None

    def return_unacknowledged(self) -> None:
        """Return what is unacknowledged and noted, since others may want it; not if each return is counted."""
        if not self._is_released and not self._refusals.returns_are_counted:
            self._gone(self._refusals.return_all(self._clock()))

    def _gone(self, tags: list[int]) -> None:
        self._held.room.forget(self._noted - self._refusals.noted)
        self._noted = self._refusals.noted
        if tags:
            self._give_back(tags)

    @property
    def _space(self) -> int:
        """The number of bytes that may still be kept: no more than is left to other links."""
        left = self._held.room.left
        return min(self._held.limit, left) - self._size

    def _keep(self, number: int, tag: int) -> bool:
        """Keep a copy of a publish; return False if there is no room for it, or it isn't held any more."""
        copy = self._held.moved_out(number)
        if copy is None:
            return False
        size = len(copy.frames)
        if size > self._space or not self._held.room.take(size):
            return False
        self._size += size
        self._copies[tag] = copy
        return True

    def _drop(self, tags: list[int], now: float) -> None:
        for tag in tags:
            size = len(self._copies.pop(tag).frames)
            self._size -= size
            self._held.room.give_back(size)
        if tags:
            self._refusals.has_room(self._space, now)

    def _give_up(self, tag: int) -> None:
        """Hand over a message for the quarantine. If that isn't possible now, it waits, and is tried again."""
        if self.hand_over is None:
            return
        copy = self._copies[tag]
        self._refusals.give_up(tag)
        if not self.hand_over(Captured(tag, QuarantineReason.REFUSED, copy.delivery, copy.properties, copy.body, 0)):
            self._refusals.wait_on(tag, self._clock())

    def _arm(self, now: float) -> None:
        if (at := self._refusals.wakes_at) < self._wakes_at:
            self._wake_at(at, now)

    def _wake_at(self, at: float, now: float) -> None:
        self._wakes_at = at
        self._later(max(0.0, at - now), partial(self._wake, at))

    def _wake(self, at: float) -> None:
        if at == self._wakes_at:  # otherwise another timer was set since, for an earlier time
            self._wakes_at = inf
            self._try(self._clock())

    def _try(self, now: float) -> None:
        if self._is_released:
            return
        if not self._may_publish():
            self._wake_at(now + BUSY, now)
            return
        again = self._refusals.to_try(now)
        if again:
            self._publish(b"".join(self._copies[tag].frames for tag in again.values()), max(again))
        self._return(now)
        self._arm(now)

    def _return(self, now: float) -> None:
        """Return some of what is unacknowledged and not kept."""
        tags = self._refusals.to_return(now, max(0, self._space))
        if tags and self._refusals.returns_are_counted and self.on_counted_return is not None:
            self.on_counted_return()
        self._gone(tags)


def _comes_too_often(message: Publish) -> bool:
    try:
        return comes_too_often(message.properties)
    except CodecError:
        return False


def comes_too_often(properties: bytes) -> bool:
    """True if the broker says that a message was returned `MOST_RETURNS` times or more; `properties` begin with their
    flags."""
    found = header_table.value_of(Properties.read(properties).raw_headers, _RETURNS)
    return found is not None and found[:1] in _INTEGERS and int.from_bytes(found[1:], "big") >= MOST_RETURNS


FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
_NOUNS: Final[Mapping[str, str]] = {
    QuarantineReason.TOO_LARGE: "larger than it takes",
    QuarantineReason.HEADERS_TOO_LARGE: "with headers larger than a frame there",
    QuarantineReason.UNREADABLE: "with properties that can't be read",
    QuarantineReason.CLOSES: "over which it closes the connection or channel",
    QuarantineReason.RETURNED: "which the source would drop if they came back more often",
}


class Unpublishable:
    """Gives messages that can't be published back upstream, less and less often: only another configuration makes them
    fit."""

    __slots__ = ("_before", "_clock", "_give_back", "_later", "_pause", "_returned_at", "_tags", "_waiting")

    def __init__(
        self,
        later: Later,
        give_back: Callable[[list[int]], None],
        clock: Callable[[], float],
        *,
        returns_are_counted: bool,
    ) -> None:
        self._later = later
        self._give_back = give_back
        self._clock = clock
        self._pause = SPARINGLY if returns_are_counted else FIRST_PAUSE
        self._tags: list[int] = []
        self._waiting: dict[str, tuple[int, int]] = {}  # by reason: how many, and the largest one's size
        self._before: dict[str, tuple[int, int]] = {}  # what was given back last
        self._returned_at = 0.0

    def add(self, tag: int, reason: str, size: int) -> None:
        count, largest = self._waiting.get(reason, (0, 0))
        self._waiting[reason] = count + 1, max(largest, size)
        if not self._tags:
            self._later(self._pause, self._return)
        self._tags.append(tag)

    @property
    def count(self) -> int:
        """The number of messages that are held."""
        return len(self._tags)

    def let_go(self) -> None:
        self._give_back = _nothing

    def describe(self, limits: Mapping[str, int]) -> str:
        """Describe the messages in an operator's words; empty if there are none. `limits` are bytes, by reason, 0 if
        unknown."""
        found = self._shown
        total = sum(count for count, _ in found.values())
        if not total:
            return ""
        parts = [
            f"{count} {_NOUNS.get(reason, reason)}{_sizes(largest, limits.get(reason))}"
            for reason, (count, largest) in sorted(found.items())
        ]
        messages = "1 message" if total == 1 else f"{total} messages"
        return f"{messages} can't be published downstream: {', '.join(parts)}"

    @property
    def _shown(self) -> dict[str, tuple[int, int]]:
        """The messages to show, by reason: those on their way back count until they have had time to come again."""
        if self._clock() - self._returned_at > COMES_BACK_WITHIN:
            return self._waiting
        reasons = self._before.keys() | self._waiting.keys()
        return {reason: max(self._before.get(reason, (0, 0)), self._waiting.get(reason, (0, 0))) for reason in reasons}

    def _return(self) -> None:
        tags, self._tags = self._tags, []
        self._pause = max(self._pause, min(2 * self._pause, LONGEST_PAUSE))
        self._before, self._waiting, self._returned_at = self._waiting, {}, self._clock()
        self._give_back(tags)


def _sizes(largest: int, limit: int | None) -> str:
    if not largest:
        return ""
    return f" (up to {largest} bytes)" if not limit else f" (up to {largest} bytes, where {limit} fit)"
