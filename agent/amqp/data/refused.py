"""What the downstream refused by basic.nack: published again from what is held, without returning it to its source.

What never gets through although others do is handed over, for the quarantine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent.amqp.data import header_table
from agent.amqp.data.capture import Captured
from agent.amqp.data.held import HeldBuffers, Publish
from agent.amqp.data.original import original, received_headers
from agent.amqp.data.prepared import PUBLISH
from agent.amqp.data.returns import Later
from agent.amqp.data.walk import Names
from agent.amqp.wire.tables import CodecError, short_string
from agent.core.links.confirms import Confirms
from agent.core.links.refusals import Refusals
from agent.core.rules.quarantine import Reason

_NAME: Final = "x-delivery-count"
RETURNS_MARK: Final = short_string(_NAME)
_RETURNS: Final = Names(_NAME)
_INTEGERS: Final = frozenset({b"b", b"B", b"s", b"u", b"I", b"i", b"l", b"L"})
BUSY: Final = 0.05  # until it is tried again to publish while a large message is being written
MOST_RETURNS: Final = 10
"""Brokers from 4.0 on drop a message of a quorum queue that came back 20 times, if nobody configures them otherwise."""

HandOver = Callable[[Captured], bool]


class Refused:
    """Of one channel. `publish` writes frames there, `is_midway` says whether nothing may be written now."""

    def __init__(
        self,
        held: HeldBuffers,
        refusals: Refusals,
        confirms: Confirms,
        *,
        publish: Callable[[bytes, int], None],
        may_publish: Callable[[], bool],
        later: Later,
        clock: Callable[[], float],
    ) -> None:
        """`publish` writes frames that end with the publish of this number; it isn't called while `may_publish` says
        no. `hand_over` says whether it took a message.
        """
        self.hand_over: HandOver | None = None
        self.counts_returns = False  # whether the source drops what came back too often
        self._held = held
        self._refusals = refusals
        self._confirms = confirms
        self._publish = publish
        self._may_publish = may_publish
        self._later = later
        self._clock = clock
        self._messages: dict[int, Publish] = {}  # by tag
        self._numbers: dict[int, int] = {}  # of those published again: publish number -> tag
        self._size = 0
        self._wakes_at = float("inf")
        self._is_released = False

    @property
    def count(self) -> int:
        """How many wait or are published again."""
        return self._refusals.count

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._refusals.count - len(self._numbers)

    def owns(self, tag: int) -> bool:
        return tag in self._messages

    def take(self, number: int, tag: int) -> bool:
        """This publish was refused; answers whether it is dealt with. If not, it has to come from its source again."""
        if self._is_released:  # answers come until the channel is closed
            return False
        now = self._clock()
        if self._numbers.pop(number, None) is not None:
            if self._refusals.refused_again(tag, now):
                self._give_up(tag)
        elif not self._keep(number, tag, now):
            return False
        self._arm(now)
        return True

    def confirmed(self, count: int) -> None:
        """So many publishes were confirmed since the last call, those that were published again among them."""
        if not self._messages:
            return
        now = self._clock()
        arrived = [number for number in self._numbers if not self._confirms.is_in_flight(number)]
        for number in arrived:
            tag = self._numbers.pop(number)
            self._refusals.arrived(tag, now)
            self._drop(tag)
        if count > len(arrived):
            self._refusals.passed(now)
        if arrived:
            self._try(now)

    def is_aside(self, tag: int) -> None:
        """It is in the quarantine."""
        self._refusals.forget(tag)
        self._drop(tag)

    def is_not_aside(self, tag: int) -> None:
        """It could not be put there."""
        if self._is_released:
            return
        now = self._clock()
        self._refusals.wait_on(tag, now)
        self._arm(now)

    def release(self) -> None:
        """Nothing is published again any more, nor kept."""
        self._is_released = True
        self._numbers.clear()
        for tag in tuple(self._messages):
            self._drop(tag)
        self._held.release()

    def _keep(self, number: int, tag: int, now: float) -> bool:
        message = self._held.message(number)
        if message is None:
            return False
        size = len(message.frames)
        if self._size + size > self._held.limit or not self._held.room.take(size):
            return False
        self._size += size
        self._messages[tag] = message
        self._refusals.refused(tag, message.prepared[PUBLISH], size, now=now)
        if self.counts_returns and _returns(message) >= MOST_RETURNS:
            self._give_up(tag)
        return True

    def _drop(self, tag: int) -> None:
        size = len(self._messages.pop(tag).frames)
        self._size -= size
        self._held.room.give_back(size)

    def _give_up(self, tag: int) -> None:
        """Where it can't be handed over now, it waits, and is tried again."""
        if self.hand_over is None:
            return
        found = original(self._messages[tag])
        self._refusals.give_up(tag)
        if not self.hand_over(Captured(tag, Reason.REFUSED, found.delivery, found.properties, found.body, 0)):
            self._refusals.wait_on(tag, self._clock())

    def _arm(self, now: float) -> None:
        at = self._refusals.wakes_at
        if at is not None and at < self._wakes_at:
            self._wakes_at = at
            self._later(max(0.0, at - now), self._wake)

    def _wake(self) -> None:
        self._wakes_at = float("inf")
        self._try(self._clock())

    def _try(self, now: float) -> None:
        if self._is_released:
            return
        if not self._may_publish():
            self._wakes_at = now + BUSY
            self._later(BUSY, self._wake)
            return
        tags = self._refusals.to_try(now)
        if tags:
            last = self._confirms.published_again(tags)
            self._numbers.update(zip(range(last - len(tags) + 1, last + 1), tags, strict=True))
            self._publish(b"".join(self._messages[tag].frames for tag in tags), last)
        self._arm(now)


def _returns(message: Publish) -> int:
    try:
        return returns_of(received_headers(message))
    except CodecError:
        return 0


def returns_of(headers: bytes) -> int:
    """How often the broker says that a message was returned, by its headers (a table with its length)."""
    found = header_table.value_of(headers, _RETURNS)
    return int.from_bytes(found[1:], "big") if found is not None and found[:1] in _INTEGERS else 0
