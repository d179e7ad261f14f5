"""Messages for a quarantine: deliveries that can't be published downstream, collected as a whole (`Capture`); and their
properties there, and as they were before; see `core.rules.quarantine`.

What its publisher wrote is kept to the byte, even if nobody can read it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names, check_table
from agent.amqp.data.rewriting import Delivery
from agent.amqp.wire import frames
from agent.amqp.wire.properties import EXPIRATION, HEADERS, USER_ID, Properties
from agent.amqp.wire.tables import MAX_SHORT, CodecError, decode_table
from agent.core.fields import Field
from agent.core.rules import quarantine


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


_RENAMED: Final = (("CC", quarantine.CC), ("BCC", quarantine.BCC))
_SHORT_STRINGS: Final = ((EXPIRATION, quarantine.EXPIRATION), (USER_ID, quarantine.USER_ID))
_TIMES: Final = range(253_402_300_800)  # until the year 9999; anybody may have written one
_OURS: Final = Names(
    quarantine.REASON,
    quarantine.LINK,
    quarantine.TIME,
    quarantine.EXCHANGE,
    quarantine.ROUTING_KEY,
    quarantine.SOURCE_EXCHANGE,
    quarantine.SOURCE_ROUTING_KEY,
    quarantine.UNREADABLE_PROPERTIES,
    quarantine.DEFLATED_PROPERTIES,
    quarantine.EXPIRATION,
    quarantine.USER_ID,
    quarantine.CC,
    quarantine.BCC,
)


@dataclass(frozen=True, slots=True)
class Why:
    """The reason why a message is in quarantine, when it got there (seconds since 1970), where it was going, and where
    it had been published."""

    reason: str
    link: str
    time: int
    exchange: bytes
    routing_key: bytes
    source_exchange: bytes
    source_routing_key: bytes

    @property
    def entries(self) -> bytes:
        text = header_table.text_entry
        parts = [
            text(quarantine.REASON, self.reason.encode()),
            text(quarantine.LINK, self.link.encode()),
            header_table.entry(quarantine.TIME, Field("T", self.time)),
            text(quarantine.EXCHANGE, self.exchange),
            text(quarantine.ROUTING_KEY, self.routing_key),
        ]
        if self.source_exchange != self.exchange:
            parts.append(text(quarantine.SOURCE_EXCHANGE, self.source_exchange))
        if self.source_routing_key != self.routing_key:
            parts.append(text(quarantine.SOURCE_ROUTING_KEY, self.source_routing_key))
        return b"".join(parts)


def enclosed(properties: bytes, why: Why, *, room: int) -> bytes:
    """The properties for the quarantine, made of `properties` as received, with their flags. What would have an effect
    there is put into headers.

    `room` is the number of bytes that fit. The result has more if nothing helps.
    """
    if len(properties) > room:
        return _kept(quarantine.DEFLATED_PROPERTIES, zlib.compress(properties), why)
    try:
        written = _enclosed(Properties.read(properties), why)
    except CodecError:
        written = _kept(quarantine.UNREADABLE_PROPERTIES, properties, why)
    return written if len(written) <= room else _kept(quarantine.DEFLATED_PROPERTIES, zlib.compress(properties), why)


def _kept(name: str, data: bytes, why: Why) -> bytes:
    return Properties(0, ()).with_first_headers(why.entries + header_table.entry(name, Field("x", data))).write()


def _enclosed(found: Properties, why: Why) -> bytes:
    if found.flags & HEADERS:
        check_table(found.raw_headers)  # a broker reads it, and would close the connection
    headers, entries = header_table.without(found.raw_headers, _OURS), why.entries
    for name, kept_as in _RENAMED:
        headers = header_table.renamed(headers, Names(name), kept_as)
        headers = header_table.without(headers, Names(name))
    for flag, kept_as in _SHORT_STRINGS:
        value = found.get(flag)
        if value is not None:
            entries += header_table.text_entry(kept_as, value[1:])
            found = found.lacking(flag)
    return found.with_raw_headers(header_table.with_first(headers, entries)).write()


@dataclass(frozen=True, slots=True)
class Restored:
    """A message that was in quarantine: the reason, and its properties as they were."""

    why: Why
    properties: bytes


def restored(properties: bytes) -> Restored | None:
    """Restore a message's properties; None if it isn't one of an agent's quarantine. The user id isn't restored: no
    other user may publish with it."""
    found = Properties.read(properties)
    headers = found.raw_headers
    why = _why(headers)
    if why is None:
        return None
    unreadable = header_table.value_of(headers, Names(quarantine.UNREADABLE_PROPERTIES))
    if unreadable is not None:
        return Restored(why, unreadable[5:])
    deflated = header_table.value_of(headers, Names(quarantine.DEFLATED_PROPERTIES))
    if deflated is not None:
        return Restored(why, _inflated(deflated[5:]))
    expiration = _raw_text(headers, quarantine.EXPIRATION)
    if expiration is not None and len(expiration) > MAX_SHORT:
        raise CodecError(f"an expiration of {len(expiration)} bytes")
    if expiration is not None:
        found = found.replaced(((EXPIRATION, bytes([len(expiration)]) + expiration),))
    for name, kept_as in _RENAMED:
        headers = header_table.renamed(headers, Names(kept_as), name)
    headers = header_table.without(headers, _OURS)
    found = found.with_raw_headers(headers) if len(headers) > len(b"size") else found.lacking(HEADERS)
    return Restored(why, found.write())


def _inflated(data: bytes) -> bytes:
    """Decompress properties. Anybody may have written them, so their size is bounded: properties came in one frame."""
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(data, frames.LARGEST)
    except zlib.error as error:
        raise CodecError(f"properties that can't be decompressed: {error}") from error
    if inflating.unconsumed_tail:
        raise CodecError("properties that are larger than a frame")
    return found


def _why(headers: bytes) -> Why | None:
    values = dict(decode_table(headers)[0])
    reason, link, time = (
        values[name].value if name in values else None for name in (quarantine.REASON, quarantine.LINK, quarantine.TIME)
    )
    exchange, routing_key = (_raw_text(headers, name) for name in (quarantine.EXCHANGE, quarantine.ROUTING_KEY))
    if not (isinstance(reason, str) and isinstance(link, str) and isinstance(time, int) and time in _TIMES):
        return None
    if exchange is None or routing_key is None:
        return None
    source_exchange, source_key = (
        _raw_text(headers, name) for name in (quarantine.SOURCE_EXCHANGE, quarantine.SOURCE_ROUTING_KEY)
    )
    return Why(
        reason,
        link,
        time,
        exchange,
        routing_key,
        exchange if source_exchange is None else source_exchange,
        routing_key if source_key is None else source_key,
    )


def _raw_text(headers: bytes, name: str) -> bytes | None:
    found = header_table.value_of(headers, Names(name))
    return None if found is None or found[:1] != b"S" else found[5:]
