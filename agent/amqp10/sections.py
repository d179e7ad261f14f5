"""The sections of an AMQP 1.0 message, found without decoding them; and their contents, for unusual messages.

Limit: a message's body has at most 10,000 sections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from agent.amqp.wire.tables import CodecError
from agent.amqp10 import types
from agent.amqp10.performatives import Performative, described_list, shown
from agent.amqp10.types import Value, skip

MAX_BODY_SECTIONS: Final = 10_000

HEADER: Final = described_list(
    "header",
    0x70,
    "durable:boolean priority:ubyte ttl:uint first_acquirer:boolean delivery_count:uint=0",
)
PROPERTIES: Final = described_list(
    "properties",
    0x73,
    "message_id:any user_id:binary to:any subject:string reply_to:any correlation_id:any content_type:symbol "
    "content_encoding:symbol absolute_expiry_time:timestamp creation_time:timestamp group_id:string "
    "group_sequence:uint reply_to_group_id:string",
)
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_LISTS: Final = b"\x45\xc0\xd0"
_MAPS: Final = b"\xc1\xd1"
_SECTIONS: Final = {
    HEADER.code: (0, "amqp:header:list", _LISTS),
    DELIVERY_ANNOTATIONS: (1, "amqp:delivery-annotations:map", _MAPS),
    MESSAGE_ANNOTATIONS: (2, "amqp:message-annotations:map", _MAPS),
    PROPERTIES.code: (3, "amqp:properties:list", _LISTS),
    APPLICATION_PROPERTIES: (4, "amqp:application-properties:map", _MAPS),
    DATA: (5, "amqp:data:binary", b"\xa0\xb0"),
    SEQUENCE: (5, "amqp:amqp-sequence:list", _LISTS),
    VALUE: (5, "amqp:amqp-value:*", bytes(range(256))),
    FOOTER: (6, "amqp:footer:map", _MAPS),
}
"""Of each section: its place in the order, its descriptor as a symbol, and the codes of its content."""
_CODES: Final[Mapping[int | str, int]] = {
    descriptor: code for code, (_, symbol, _) in _SECTIONS.items() for descriptor in (code, symbol)
}
_BODY: Final = 5
_SMALL_ULONG: Final = 0x53
_USUAL: Final = bytes((0, _SMALL_ULONG))  # how descriptors begin
_DESCRIPTORS: Final = {b"\x44", b"\x53", b"\x80", b"\xa3", b"\xb3"}  # the codes of numbers and symbols


class Sections(NamedTuple):
    """A message's sections with their descriptors, as beginning and end. An absent one is empty, where it would be.

    All data, amqp-sequence or amqp-value sections together are the body; `body_kind` is DATA, SEQUENCE or VALUE, or
    None if there is none.
    """

    header: tuple[int, int]
    delivery_annotations: tuple[int, int]
    message_annotations: tuple[int, int]
    properties: tuple[int, int]
    application_properties: tuple[int, int]
    body: tuple[int, int]
    footer: tuple[int, int]
    body_kind: int | None


def find_sections(message: bytes) -> Sections:
    """One pass by sizes; what is inside of the sections may still be wrong."""
    size, at, bodies, kind = len(message), 0, 0, None
    starts: list[int] = []
    while at < size:
        code, content = _begin(message, at)
        place, symbol, forms = _SECTIONS[code]
        if message[content] not in forms:
            raise CodecError(f"the AMQP 1.0 section {symbol} has the code 0x{message[content]:02x}")
        if place >= len(starts):
            starts += [at] * (place + 1 - len(starts))
            if place == _BODY:
                kind = code
        elif code != kind or code == VALUE or place < len(starts) - 1:
            raise CodecError(f"the AMQP 1.0 section {symbol} is repeated, or behind one that it must precede")
        elif (bodies := bodies + 1) == MAX_BODY_SECTIONS:
            raise CodecError(f"an AMQP 1.0 message has more than {MAX_BODY_SECTIONS} sections of {symbol}")
        at = skip(message, content)
    starts += [size] * (8 - len(starts))
    a, b, c, d, e, f, g, h = starts
    return Sections((a, b), (b, c), (c, d), (d, e), (e, f), (f, g), (g, h), kind)


def _begin(message: bytes, at: int) -> tuple[int, int]:
    """The code of the section at `at`, and where its content begins."""
    if at + 3 < len(message) and message[at] == 0 and message[at + 1] == _SMALL_ULONG and message[at + 2] in _SECTIONS:
        return message[at + 2], at + 3
    if message[at] or message[at + 1 : at + 2] not in _DESCRIPTORS:
        raise CodecError(f"no AMQP 1.0 section begins with 0x{message[at : at + 2].hex()}")
    descriptor, content = types.decode(message, at + 1)
    code = _CODES.get(descriptor.value)
    if code is None:
        raise CodecError(f"unknown AMQP 1.0 section {shown(descriptor)}")
    if content == len(message):
        raise CodecError(types.CUT_OFF)
    return code, content


def content_of(code: int, message: bytes, at: int) -> int | None:
    """Return where the content of the section at `at` begins, if it is one of this code, by whichever descriptor."""
    if message[at : at + 2] == _USUAL:
        return at + 3 if message[at + 2 : at + 3] == bytes((code,)) else None
    try:
        found, content = _begin(message, at) if at < len(message) else (None, at)
    except CodecError:  # the peer's to judge
        return None
    return content if found == code else None


def header(message: bytes, sections: Sections) -> Mapping[str, Any]:
    """By name: `durable`, `priority`, `ttl` and so on; None where they are absent, as no broker takes AMQP's defaults
    for them: RabbitMQ's priority is then 0."""
    return _fields(HEADER, message, sections.header)


def properties(message: bytes, sections: Sections) -> Mapping[str, Any]:
    """By name: `message_id`, `user_id` and so on; None for those that are absent."""
    return _fields(PROPERTIES, message, sections.properties)


def _fields(section: Performative, message: bytes, span: tuple[int, int]) -> Mapping[str, Any]:
    start, end = span
    return section.read(message, _begin(message, start)[1], end)[0].values if start < end else dict(section.absent)


def pairs(message: bytes, span: tuple[int, int]) -> tuple[tuple[Value, Value], ...]:
    """The keys and values of annotations, application properties or a footer; `span` is from `Sections`."""
    return next((value.value for value in values(message, span)), ())


def values(message: bytes, span: tuple[int, int]) -> Iterator[Value]:
    """The contents of sections: of a body each data as a binary, each amqp-sequence as a list, or the amqp-value."""
    at, end = span
    while at < end:
        value, at = types.decode(message, _begin(message, at)[1], end=end)
        yield value


def section(code: int, value: Value) -> bytes:
    """A section's bytes; those of a header and of properties are made by `HEADER.encode` and `PROPERTIES.encode`."""
    return b"\x00\x53" + bytes((code,)) + types.encode(value)
