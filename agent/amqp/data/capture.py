"""Collects whole deliveries that can't be published downstream, so that they can be put into a quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.amqp.data.rewriting import Delivery


@dataclass(frozen=True, slots=True)
class Captured:
    """A delivery that can't be published downstream. `properties` begin with their flags, as received. `excess` is the
    size of what is too large, 0 if nothing is."""

    tag: int
    reason: str
    delivery: Delivery
    properties: bytes
    body: bytes
    excess: int

    @property
    def size(self) -> int:
        return len(self.properties) + len(self.body)


MOST_NOTED: Final = 200_000


class Room:
    """The number of bytes that all links together may collect at a time, and the number of messages that they may note
    without keeping them."""

    def __init__(self, limit: int, *, most_noted: int = MOST_NOTED) -> None:
        self.left = limit
        self._most_noted = most_noted
        self._noted = 0

    def note(self) -> bool:
        """Note one more message; return False if there are too many."""
        if self._noted >= self._most_noted:
            return False
        self._noted += 1
        return True

    def forget(self, count: int) -> None:
        self._noted -= count

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True

    def give_back(self, size: int) -> None:
        self.left += size


class Capture:
    """Collects the deliveries of one flow, which come one after another, and passes each to `hand_over`, whose side
    gives the room back later."""

    def __init__(self, room: Room, hand_over: Callable[[Captured], None]) -> None:
        self._room = room
        self._hand_over = hand_over
        self._taken = 0
        self._begun: Callable[[bytes], Captured] | None = None
        self._parts: list[bytes] = []

    @property
    def is_collecting(self) -> bool:
        return self._begun is not None

    def begin(self, tag: int, reason: str, delivery: Delivery, *, properties: bytes, size: int, excess: int) -> bool:
        """Start to collect a delivery, whose body of `size` bytes follows; return True if there is room for it."""
        if not self._room.take(len(properties) + size):
            return False
        self._taken = len(properties) + size
        self._begun = lambda body: Captured(tag, reason, delivery, properties, body, excess)
        return True

    def take(self, captured: Captured) -> bool:
        """Hand over a delivery that is already complete; return True if there is room for it."""
        if not self._room.take(captured.size):
            return False
        self._hand_over(captured)
        return True

    def add(self, part: bytes) -> None:
        self._parts.append(part)

    def end(self) -> None:
        """Hand over the delivery: its body is complete."""
        begun, parts = self._begun, self._parts
        self._begun, self._parts, self._taken = None, [], 0
        if begun is not None:
            self._hand_over(begun(b"".join(parts)))

    def abandon(self) -> None:
        """Forget the delivery that is being collected: the rest of it won't come."""
        self._room.give_back(self._taken)
        self._begun, self._parts, self._taken = None, [], 0
