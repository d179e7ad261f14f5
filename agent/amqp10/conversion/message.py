"""Whole messages of AMQP 1.0 as those of 0-9-1, and back. What gets lost is named by its kind."""

from __future__ import annotations

from collections.abc import Set
from typing import Final, NamedTuple

from agent.amqp.wire.properties import EXPIRATION, FLAGS, HEADERS, Properties
from agent.amqp.wire.tables import CodecError
from agent.amqp10 import sections
from agent.amqp10.conversion.headers import (
    EXCHANGE,
    ROUTING_KEY,
    TYPE,
    annotations_to_headers,
    headers_to_maps,
    map_section,
    map_to_headers,
    restore,
    try_sections,
)
from agent.amqp10.conversion.properties import (
    BOOLEANS,
    UBYTES,
    UINTS,
    content,
    fields_of,
    number_in,
    section_of,
    short,
    text_in,
    to_fields,
    to_properties,
)
from agent.amqp10.conversion.values import (
    BINARY,
    STRING,
    SYMBOL,
    Loss,
    Losses,
    is_text,
    map_span,
    string_of,
    table,
    text_of,
)
from agent.amqp10.sections import DATA, Sections
from agent.amqp10.types import skip

LARGEST: Final = 131_072
"""Bytes before a message's body: all of them go into one frame of 0-9-1, and that is what brokers take."""
ENCODED: Final = b"amqp-1.0"
"""The type of a message of 0-9-1 whose body is one or more sections of AMQP 1.0."""

_DELIVERY_MODE: Final = FLAGS["delivery_mode"]
_PRIORITY: Final = FLAGS["priority"]
_TYPE: Final = FLAGS["type"]
_HEADER: Final = (BOOLEANS, UBYTES, UINTS, BOOLEANS, UINTS)
_LARGEST_TTL: Final = 2**32 - 1
_PERSISTENT: Final = b"\x02"


class Converted091(NamedTuple):
    """A message for 0-9-1. The exchange and the routing key are what RabbitMQ says that it was published with."""

    properties: bytes
    body: bytes
    exchange: bytes
    routing_key: bytes
    is_redelivered: bool
    lost: Set[Loss]


class Converted10(NamedTuple):
    """A message for AMQP 1.0."""

    message: bytes
    lost: Set[Loss]


def to_091(message: bytes, found: Sections) -> Converted091:
    """The message for 0-9-1; CodecError if it can't be read, or has more than fits in a header of 0-9-1."""
    if found.body[0] > LARGEST:
        raise CodecError(f"an AMQP 1.0 message with {found.body[0]} bytes before its body: 0-9-1 takes {LARGEST}")
    losses = Losses()
    values: dict[int, bytes] = {}
    headers: dict[bytes, bytes] = {}
    texts = annotations_to_headers(message, found.message_annotations, headers, losses)
    is_redelivered = _read_header(message, found.header, values, losses)
    to_properties(message, found.properties, values, headers, losses)
    if found.application_properties[0] < found.application_properties[1]:
        at, after = map_span(message, *content(message, found.application_properties))
        map_to_headers(message, at, after, headers, losses)
    body, kind = _read_body(message, found, texts.get(TYPE), losses)
    if kind is not None:
        values[_TYPE] = short(kind)
    if headers:
        values[HEADERS] = table(headers)
    properties = sum(values).to_bytes(2, "big") + b"".join([values[flag] for flag in sorted(values, reverse=True)])
    return Converted091(properties, body, texts.get(EXCHANGE, b""), texts.get(ROUTING_KEY, b""), is_redelivered, losses)


def _read_header(message: bytes, span: tuple[int, int], values: dict[int, bytes], losses: Losses) -> bool:
    """True if the message was delivered before."""
    durable, priority, ttl, _, deliveries = fields_of(message, span, _HEADER, losses)
    if durable:
        values[_DELIVERY_MODE] = _PERSISTENT if durable in {b"\x41", b"\x56\x01"} else b"\x01"
    if priority:
        values[_PRIORITY] = priority[1:]
    if ttl:
        values[EXPIRATION] = short(b"%d" % number_in(ttl))
    return number_in(deliveries) > 0


def _read_body(message: bytes, found: Sections, kind: bytes | None, losses: Losses) -> tuple[bytes, bytes | None]:
    """The body, and the type of a message that has this one."""
    begin, end = found.body
    if found.body_kind is None:
        return b"", kind
    if found.body_kind != DATA:
        return message[begin : found.footer[1]], ENCODED
    if found.footer[0] < found.footer[1]:
        losses.add(Loss.FOOTER)
    at, _ = content(message, found.body)
    if skip(message, at) == end:
        return text_in(message[at:end]), kind
    losses.add(Loss.BODY_PARTS)
    return b"".join([part.value for part in sections.values(message, found.body)]), kind


def to_10(properties: bytes, body: bytes, exchange: bytes, routing_key: bytes) -> Converted10:
    """The message for AMQP 1.0, as published to this exchange with this key; CodecError if it can't be read."""
    losses = Losses()
    values = dict(Properties.read(properties).values)
    annotations = {EXCHANGE: string_of(exchange), ROUTING_KEY: string_of(routing_key)}
    application: dict[bytes, bytes] = {}
    kept: dict[bytes, bytes] = {}
    tail = _body_section(values, body, annotations, losses)
    if HEADERS in values:
        headers_to_maps(values[HEADERS], annotations, application, kept, losses)
    fields = to_fields(values, losses)
    if kept:
        fields, tail = restore(kept, fields, annotations, application, body=tail, losses=losses)
    parts = [_header_section(values, losses), map_section(sections.MESSAGE_ANNOTATIONS, SYMBOL, annotations)]
    if any(fields):
        parts.append(section_of(sections.PROPERTIES.code, fields))
    if application:
        parts.append(map_section(sections.APPLICATION_PROPERTIES, STRING, application))
    return Converted10(b"".join([*parts, tail]), losses)


def _header_section(values: dict[int, bytes], losses: Losses) -> bytes:
    durable = b"\x41" if values.get(_DELIVERY_MODE) == _PERSISTENT else b"\x42"
    priority = b"\x50" + values[_PRIORITY] if _PRIORITY in values else b""
    ttl = b""
    if EXPIRATION in values:
        text = values[EXPIRATION][1:]
        if text.isdigit() and int(text) <= _LARGEST_TTL:
            ttl = b"\x70" + int(text).to_bytes(4, "big")
        else:
            losses.add(Loss.EXPIRATION)
    return section_of(sections.HEADER.code, [durable, priority, ttl])


def _body_section(values: dict[int, bytes], body: bytes, annotations: dict[bytes, bytes], losses: Losses) -> bytes:
    """A type becomes an annotation, unless it says that the body is one of AMQP 1.0."""
    kind = values[_TYPE][1:] if _TYPE in values else None
    if kind == ENCODED:
        found = try_sections(body)
        if found is not None and found.body[0] == 0 and found.body_kind is not None:
            return body
    if kind is not None and is_text(kind):
        annotations[TYPE] = text_of(STRING, kind)
    elif kind is not None:
        losses.add(Loss.PROPERTY)
    return b"\x00\x53" + bytes((DATA,)) + text_of(BINARY, body)
