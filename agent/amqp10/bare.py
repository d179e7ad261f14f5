"""Messages that pass from one broker of AMQP 1.0 to another as they are, but for what belongs to a single hop.

Why: docs/decisions/0063-amqp10-by-translation.md
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from agent.amqp.wire.properties import Properties
from agent.amqp.wire.tables import CodecError, decode_table
from agent.amqp10 import sections, types
from agent.amqp10.conversion.values import map_span, name_at
from agent.amqp10.sections import (
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    content_of,
    find_sections,
)
from agent.amqp10.types import Value
from agent.core.fields import Field

MOST_ANNOTATIONS: Final = 32 * 1024  # bytes: 40 ms at worst
NO_PROPERTIES: Final = b"\x00\x00"
NO_ADDRESS: Final = b"\x00\x00"  # neither exchange nor routing key
_LISTS: Final = frozenset({b"\xc0", b"\xd0"})
_LARGE_LIST: Final = struct.Struct(">BII")
_NULL: Final = bytes((types.NULL_CODE,))
_USER_PLACE: Final = 2
_MOST_HEADERS: Final = 256
_OFFSET: Final = b"x-stream-offset"  # where a message stood in the stream that it comes from
_FEW_ANNOTATIONS: Final = b"\x00\x53\x72\xc1"  # how a section of less than 256 bytes begins, and then its size
_MAPS: Final = frozenset({b"\xc1", b"\xd1"})
_LARGE_MAP: Final = struct.Struct(">BII")
_OF_MESSAGES: Final = ("durable", "priority", "ttl")  # the other fields of a header count what happened at one broker
_TYPES: Final = {"S": "string", "l": "long", "t": "boolean"}


class Taken(NamedTuple):
    """A message for the data path: properties, body, whether it came before; exchange and routing key, with their
    lengths."""

    properties: bytes
    body: bytes
    is_redelivered: bool
    address: bytes


class BareMessages:
    """Makes messages ready for the next broker: delivery annotations are for one hop, and so is what a header counts.
    Headers repeat, so what was made of them is kept."""

    def __init__(self) -> None:
        self._headers: dict[bytes, tuple[bytes, bool]] = {}

    def take(self, message: bytes) -> Taken:
        """The message as a body without properties; what it holds isn't looked at."""
        kept, is_redelivered, at = b"", False, 0
        if (content := content_of(HEADER.code, message, at)) is not None:
            at = types.skip(message, content)
            kept, is_redelivered = self._headers.get(message[:at]) or self._kept(message[:at])
        if (content := content_of(DELIVERY_ANNOTATIONS, message, at)) is not None:
            at = types.skip(message, content)
        size = message[at + 4 : at + 5] if message.startswith(_FEW_ANNOTATIONS, at) else b""
        if size and message.find(_OFFSET, at, at + 5 + size[0]) < 0:  # the usual case, at a third of the time
            rest = message[at:]
        else:
            rest = _without_offset(message, at)
        return Taken(NO_PROPERTIES, kept + rest, is_redelivered, NO_ADDRESS)

    def _kept(self, header: bytes) -> tuple[bytes, bool]:
        if len(self._headers) >= _MOST_HEADERS:
            self._headers.clear()
        fields = sections.header(header, find_sections(header))
        kept = HEADER.encode(**{name: fields[name] for name in _OF_MESSAGES})
        made = self._headers[header] = kept, fields["delivery_count"] > 0
        return made


def _without_offset(message: bytes, begin: int) -> bytes:
    """The message from `begin` on, where its annotations may be. What can't be read is left to the peer, and so is an
    offset among more annotations than are looked at."""
    content = content_of(MESSAGE_ANNOTATIONS, message, begin)
    if content is None or message[content : content + 1] not in _MAPS:
        return message[begin:]
    try:
        first, after = map_span(message, content, len(message))
        if after - first > MOST_ANNOTATIONS or message.find(_OFFSET, first, after) < 0:
            return message[begin:]
        at, count = first, 0
        found: tuple[int, int] | None = None
        while at < after:
            name, value = name_at(message, at, after)
            beyond = types.skip(message, value)
            if name == _OFFSET:
                found = at, beyond
            at, count = beyond, count + 2
    except CodecError:
        return message[begin:]
    if found is None or at != after:
        return message[begin:]
    left = message[first : found[0]] + message[found[1] : after]
    return message[begin:content] + _LARGE_MAP.pack(0xD1, len(left) + 4, count - 2) + left + message[after:]


def annotated(message: bytes, properties: bytes) -> bytes:
    """The message with the headers that the data path has added as message annotations."""
    if properties == NO_PROPERTIES:
        return message
    added = decode_table(Properties.read(properties).raw_headers)[0]
    found = find_sections(message)
    names = {name for name, _ in added}
    begin, after = found.message_annotations
    if after - begin > MOST_ANNOTATIONS:
        raise CodecError(f"message annotations of {after - begin} bytes: at most {MOST_ANNOTATIONS} can be added to")
    former = [pair for pair in sections.pairs(message, (begin, after)) if pair[0].value not in names]
    pairs = (*former, *((Value("symbol", name), _value(field)) for name, field in added))
    return message[:begin] + sections.section(MESSAGE_ANNOTATIONS, Value("map", pairs)) + message[after:]


def _value(field: Field) -> Value:
    return Value(_TYPES[field.tag], field.value)


def without_foreign_user(message: bytes, user: bytes) -> bytes:
    """The message without its user id, unless that is `user`: RabbitMQ refuses any other, and ends the link by that."""
    at = _properties_at(message)
    if at is None or message[at : at + 1] not in _LISTS:
        return message
    count, first, after = types.find_list(message, at, len(message))
    if count < _USER_PLACE:
        return message
    place = types.skip(message, first)
    kept = (_NULL, types.encode(Value("binary", user))) if user else (_NULL,)
    if message.startswith(kept, place):
        return message
    fields = message[first:place] + _NULL + message[types.skip(message, place) : after]
    return message[:at] + _LARGE_LIST.pack(0xD0, len(fields) + 4, count) + fields + message[after:]


def _properties_at(message: bytes) -> int | None:
    """Return where the list of a message's properties begins, if it has any."""
    at = 0
    for code in (HEADER.code, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS):
        if (content := content_of(code, message, at)) is not None:
            at = types.skip(message, content)
    return content_of(PROPERTIES.code, message, at)
