"""Tracks the publishes of a move: what doesn't get through stays at its source, unacknowledged until the move ends, and
is counted by its reason. Nothing is tried again, and nothing is acknowledged that no queue has taken.

Why: docs/decisions/0065-moves-on-the-data-path.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agent.amqp.data.header_table import skip_value
from agent.amqp.data.held import Publish
from agent.amqp.data.prepared import PUBLISH
from agent.amqp.data.publish_tracker import PublishTracker
from agent.amqp.wire import frames, methods
from agent.amqp.wire.channel import Message
from agent.amqp.wire.properties import HEADERS, Properties
from agent.core.rules.moves import REFUSED, UNROUTABLE

_PAYLOAD: Final = slice(frames.PREFIX.size, -1)  # of a whole frame


class MoveTracker(PublishTracker):
    """A publish tracker that keeps what doesn't get through.

    `basic.return` doesn't say which publish it is about, and a confirm follows for it as for all others. So a returned
    message is recognized by what is in it, among those that are unconfirmed, in the order in which they were published.
    If that can't be done, no confirm counts any more, and `on_doubt` is called.
    """

    __slots__ = ("_after", "held_bytes", "on_doubt", "on_stay")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.held_bytes = 0  # of the bodies of what stays
        self.on_stay: Callable[[], None] | None = None
        self.on_doubt: Callable[[], None] | None = None
        self._after = 0  # the publish that was returned last
        self._channel.on_message = self._came_back

    @property
    def held_unpublishable(self) -> int:
        return self.confirms.held

    def refuse(self, tag: int, reason: str, size: int) -> None:
        self.confirms.hold(tag)
        self._stay(reason, size)

    def _refuse(self, number: int, *, multiple: bool) -> None:
        for each in self.confirms.refused(number, multiple=multiple):
            self._stay(REFUSED, self._size_of(each))

    def _stay(self, reason: str, size: int) -> None:
        self._counts.unpublishable[reason] = self._counts.unpublishable.get(reason, 0) + 1
        self.held_bytes += size
        self._limit_unsettled()
        if self.on_stay is not None:
            self.on_stay()

    def _size_of(self, number: int) -> int:
        known = None if self.held is None else self.held.known(number)
        return 0 if known is None else known[1]

    def _returned(self, kind: int, payload: bytes) -> None:
        super()._returned(kind, payload)
        self._channel.received(kind, payload)

    def _came_back(self, message: Message) -> None:
        number = self._find(message)
        if number is not None:
            self._after = number
            self.confirms.refused(number, multiple=False)
            self._stay(UNROUTABLE, self._size_of(number))
            return
        self._heeds_confirms = False
        if self.on_doubt is not None:
            self.on_doubt()

    def _find(self, message: Message) -> int | None:
        """The number of the publish that was returned; None if that isn't certain.

        Brokers return messages in the order in which they were published. From 4.0 on headers are sorted, and may have
        other tags; BCC is missing. So if no message is the same, the only one with this address and body is it.
        """
        address, wanted = _address(message.call), _comparable(message.properties)
        similar: list[int] = []
        for number in range(max(self._after + 1, self.confirms.oldest_number), self.confirms.next_number):
            if not self.confirms.is_in_flight(number):
                continue
            publish = None if self.held is None else self.held.copy(number)
            if publish is None:  # it may be this one
                return None
            if publish.body != message.body or _address(methods.decode(publish.prepared[PUBLISH][_PAYLOAD])) != address:
                continue
            if _comparable(_published_properties(publish)) == wanted:
                return number
            similar.append(number)
        return similar[0] if len(similar) == 1 else None


def _address(call: methods.Call) -> tuple[str, str]:
    return call["exchange"], call["routing_key"]


def _published_properties(publish: Publish) -> Properties:
    at = len(publish.prepared[PUBLISH])
    _, _, size = frames.PREFIX.unpack_from(publish.frames, at)
    return Properties.read(
        publish.frames[at + frames.PREFIX.size + frames.BASIC_HEADER.size : at + frames.PREFIX.size + size]
    )


def _comparable(read: Properties) -> object:
    """The properties without what brokers change in a message that they return."""
    others = tuple(value for flag, value in read.values if flag != HEADERS)
    headers: dict[bytes, bytes] = {}
    table, at = read.raw_headers, 4
    while at < len(table):
        value = at + 1 + table[at]
        after = skip_value(table, value, len(table))
        tag = table[value : value + 1].replace(b"L", b"l")
        headers.setdefault(table[at:value], tag + table[value + 1 : after])
        at = after
    headers.pop(b"\x03BCC", None)
    return read.flags & ~HEADERS & ~3, others, headers
