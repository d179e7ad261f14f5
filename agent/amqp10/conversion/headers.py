"""Annotations and application properties of AMQP 1.0 as headers of 0-9-1, and back. Both are names with encoded values.

Some names mean more in one of the protocols, or say more of a message than the other protocol can.
"""

from __future__ import annotations

from typing import Final

from agent.amqp.wire.tables import MAX_SHORT, CodecError, encode_value
from agent.amqp10 import sections, types
from agent.amqp10.conversion.properties import (
    CORRELATION_ID_HEADER,
    KEPT_PROPERTIES,
    MESSAGE_ID_HEADER,
    PROPERTIES,
    STRINGS,
    TIMES,
    USER_ID_PLACE,
    content,
    fields_of,
)
from agent.amqp10.conversion.values import (
    ARRAY,
    LARGEST_NESTED,
    LIST,
    MAP,
    MAPS,
    STRING,
    TABLE,
    Loss,
    Losses,
    compound,
    field_of,
    header_name,
    is_text,
    map_span,
    name_at,
    span_of,
    text_of,
    value_of,
)
from agent.amqp10.sections import Sections, find_sections
from agent.amqp10.types import skip
from agent.core.fields import Field

EXCHANGE: Final = b"x-exchange"
ROUTING_KEY: Final = b"x-routing-key"
TYPE: Final = b"x-basic-type"
"""Annotations of RabbitMQ's for what isn't a header in 0-9-1."""
_TEXTS: Final = frozenset((EXCHANGE, ROUTING_KEY, TYPE))
_INTERNAL: Final = b"x-basic-"  # of RabbitMQ 3.13, which had no better place for some properties
_X: Final = b"x-"  # a header that begins with it is an annotation

_CC: Final = b"CC"
_CC_ANNOTATION: Final = b"x-cc"
_OFFSET: Final = b"x-stream-offset"  # where a message stood in the stream that it comes from
_RECEIVED: Final = b"timestamp_in_ms"
_RECEIVED_ANNOTATION: Final = b"x-opt-rabbitmq-received-time"
_DEATHS: Final = b"x-death"
_DEATHS_ANNOTATION: Final = b"x-opt-deaths"
_NESTED_ANNOTATION: Final = b"x-opt-headers"  # ours: headers that may be no application properties
_STRUCTURED: Final = frozenset((_RECEIVED_ANNOTATION, _DEATHS_ANNOTATION, _NESTED_ANNOTATION))

KEPT: Final = b"x-amqp-1.0-"
"""The beginning of names of headers that hold a section of AMQP 1.0. The plugin of RabbitMQ 3 wrote them, and RabbitMQ
4 reads them; an unreadable one closes the connection of a consumer there."""
_KEPT_APPLICATION: Final = b"x-amqp-1.0-app-properties"
_KEPT_ANNOTATIONS: Final = b"x-amqp-1.0-message-annotations"
_KEPT_FOOTER: Final = b"x-amqp-1.0-footer"

_DEATH: Final = {
    "queue": "string",
    "reason": "symbol",
    "count": "ulong",
    "first-time": "timestamp",
    "last-time": "timestamp",
    "exchange": "string",
    "routing-keys": "array",
}
_LARGEST_LONG: Final = 2**63 - 1


# To 0-9-1


def annotations_to_headers(
    message: bytes, span: tuple[int, int], headers: dict[bytes, bytes], losses: Losses
) -> dict[bytes, bytes]:
    """Add annotations to the headers; return the EXCHANGE, ROUTING_KEY and TYPE."""
    texts: dict[bytes, bytes] = {}
    if span[0] == span[1]:
        return texts
    at, after = map_span(message, *content(message, span))
    while at < after:
        name, begin = name_at(message, at, after)
        if name in _STRUCTURED:
            at = skip(message, begin)
            if at <= after and _add_structured(name, message[begin:at], headers, losses):
                continue
        value, at = field_of(message, begin, after, losses)
        if name is None or not name.startswith(_X):
            losses.add(Loss.ANNOTATION)
        elif name in _TEXTS:
            text = value[5:]
            if value[:1] == b"S" and len(text) <= MAX_SHORT and is_text(text):
                texts[name] = text
        elif not name.startswith(_INTERNAL) and name != _OFFSET:
            _add(headers, _CC if name == _CC_ANNOTATION else name, value, losses)
    return texts


def map_to_headers(message: bytes, at: int, after: int, headers: dict[bytes, bytes], losses: Losses) -> None:
    """Add the entries of the map between the two places."""
    while at < after:
        name, at = name_at(message, at, after)
        value, at = field_of(message, at, after, losses)
        _add(headers, name, value, losses)


def _add(headers: dict[bytes, bytes], name: bytes | None, value: bytes, losses: Losses) -> None:
    if name is None or len(name) > MAX_SHORT or name in headers or name.startswith(KEPT):
        losses.add(Loss.NAME)
    elif value:
        headers[name] = value


def _add_structured(name: bytes | None, raw: bytes, headers: dict[bytes, bytes], losses: Losses) -> bool:
    """False if the value isn't what the name promises."""
    if name == _RECEIVED_ANNOTATION and raw[0] in TIMES:
        _add(headers, _RECEIVED, b"l" + raw[1:], losses)
    elif name == _DEATHS_ANNOTATION and len(raw) <= LARGEST_NESTED and (deaths := _deaths(raw)):
        _add(headers, _DEATHS, deaths, losses)
    elif name == _NESTED_ANNOTATION and raw[0] in MAPS and losses.has_room(len(raw)):
        map_to_headers(raw, *map_span(raw, 0, len(raw)), headers, losses)
    else:
        return False
    return True


def _deaths(raw: bytes) -> bytes:
    """Convert the message's deaths to an array of tables, as in 0-9-1; empty if the value says something else."""
    value = types.decode(raw)[0]
    tables = []
    for item in value.value.items if value.type == "array" else ():
        death = {key.value: each for key, each in item.value} if item.type == "map" else {}
        ttl = death.pop("ttl", None)
        if {name: each.type for name, each in death.items()} != _DEATH:
            return b""
        routing_keys = death["routing-keys"].value.items
        if not all(key.type == "string" for key in routing_keys):
            return b""
        first = [("original-expiration", Field("S", str(ttl.value)))] if ttl is not None and ttl.type == "uint" else []
        rest = (
            ("count", Field("l", min(death["count"].value, _LARGEST_LONG))),
            ("reason", Field("S", death["reason"].value)),
            ("queue", Field("S", death["queue"].value)),
            ("time", Field("T", max(0, death["first-time"].value) // 1000)),
            ("exchange", Field("S", death["exchange"].value)),
            ("routing-keys", Field("A", tuple(Field("S", key.value) for key in routing_keys))),
        )
        tables.append(Field("F", (*first, *rest)))
    return encode_value(Field("A", tuple(tables))) if tables else b""


# To AMQP 1.0


def headers_to_maps(
    raw: bytes,
    annotations: dict[bytes, bytes],
    application: dict[bytes, bytes],
    kept: dict[bytes, bytes],
    losses: Losses,
) -> None:
    """Add the headers of a table to annotations, to application properties, or to the sections that are kept in them.
    Lists and maps that may be neither go into an annotation of ours."""
    nested: dict[bytes, bytes] = {}
    at, end = 4, len(raw)
    while at < end:
        name, begin = header_name(raw, at, end)
        value, at = value_of(raw, begin, end, losses)
        into = application
        if name.startswith(KEPT):
            kept[name] = raw[begin + 5 : at]
            continue
        if name.startswith(_X):
            into = annotations
        elif name == _CC and raw[begin] == ARRAY:
            name, into, value = _CC_ANNOTATION, annotations, _routing_keys(raw, begin, at, losses)
        elif raw[begin] in {ARRAY, TABLE}:
            into = nested
        if name in into or not (name.isascii() if into is annotations else is_text(name)):
            losses.add(Loss.NAME)
        elif value:
            into[name] = value
    if nested:
        entries = [part for name, value in nested.items() for part in (text_of(STRING, name), value)]
        annotations.setdefault(_NESTED_ANNOTATION, compound(MAP, entries))


def _routing_keys(raw: bytes, at: int, end: int, losses: Losses) -> bytes:
    """RabbitMQ detaches the link of a sender whose CC has anything but text."""
    at, _ = span_of(raw, at + 1, end)
    keys = []
    while at < end:
        value, at = value_of(raw, at, end, losses)
        if value and value[0] in STRINGS:
            keys.append(value)
        else:
            losses.add(Loss.CC)
    return compound(LIST, keys)


def restore(
    kept: dict[bytes, bytes],
    fields: list[bytes],
    annotations: dict[bytes, bytes],
    application: dict[bytes, bytes],
    *,
    body: bytes,
    losses: Losses,
) -> tuple[list[bytes], bytes]:
    """Add what headers have kept of AMQP 1.0; return the fields of properties, and the body with its footer."""
    for name, raw in kept.items():
        found = try_sections(raw)
        whole = (0, len(raw))
        try:
            if found is None or not raw:
                losses.add(Loss.NAME)
            elif name == KEPT_PROPERTIES and found.properties == whole:
                former = fields_of(raw, whole, PROPERTIES, losses)
                fields = [*former[:USER_ID_PLACE], fields[USER_ID_PLACE], *former[USER_ID_PLACE + 1 :]]
                annotations.pop(MESSAGE_ID_HEADER, None)
                annotations.pop(CORRELATION_ID_HEADER, None)
            elif name == _KEPT_APPLICATION and found.application_properties == whole:
                _add_former(application, raw, whole, losses)
            elif name == _KEPT_ANNOTATIONS and found.message_annotations == whole:
                _add_former(annotations, raw, whole, losses, prefix=_X)
            elif name == _KEPT_FOOTER and found.footer == whole and find_sections(body).footer[0] == len(body):
                sections.pairs(raw, whole)
                body += raw
            else:
                losses.add(Loss.NAME)
        except CodecError:
            losses.add(Loss.NAME)
    return fields, body


def _add_former(
    entries: dict[bytes, bytes], raw: bytes, span: tuple[int, int], losses: Losses, *, prefix: bytes = b""
) -> None:
    """Add what a section holds, but for names that have something newer; RabbitMQ refuses annotations without x-."""
    at, after = map_span(raw, *content(raw, span))
    while at < after:
        name, begin = name_at(raw, at, after)
        _, at = types.decode(raw, begin, end=after)
        if name is not None and name.isascii() and name.startswith(prefix):
            entries.setdefault(name, raw[begin:at])
        else:
            losses.add(Loss.ANNOTATION if prefix else Loss.NAME)


def try_sections(data: bytes) -> Sections | None:
    """The sections of a message of AMQP 1.0, if this is one."""
    try:
        return find_sections(data)
    except CodecError:
        return None


def map_section(code: int, key: int, entries: dict[bytes, bytes]) -> bytes:
    """A section that is a map; `key` is STRING or SYMBOL."""
    items = [part for name, value in entries.items() for part in (text_of(key, name), value)]
    return b"\x00\x53" + bytes((code,)) + compound(MAP, items)
