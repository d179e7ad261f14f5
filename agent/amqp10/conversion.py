"""Messages of AMQP 1.0 as those of 0-9-1 and back, by the table of docs/amqp10-conversion.md.

What is lost is named by its kind, never by what a message says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from agent.amqp.wire.properties import FLAGS, HEADERS, Properties
from agent.amqp.wire.tables import MAX_SHORT, CodecError, encode_value
from agent.amqp10 import sections, types
from agent.amqp10.header_values import (
    ARRAY,
    BINARY,
    LIST,
    MAP,
    MAPS,
    STRING,
    SYMBOL,
    TABLE,
    Loss,
    Losses,
    compound,
    field_of,
    header_name,
    is_text,
    long_string,
    map_span,
    milliseconds_of,
    name_at,
    span_of,
    string_of,
    table,
    text_of,
    uuid_text,
    value_of,
)
from agent.amqp10.sections import DATA, Sections, find_sections
from agent.amqp10.types import NULL_CODE, find_list, skip
from agent.core.fields import Field

LARGEST: Final = 131_072
"""Bytes before a message's body: all of them go into one frame of 0-9-1, and that is what brokers take."""
ENCODED_BODY: Final = b"amqp-1.0"
"""The type of messages of 0-9-1 whose body is one of AMQP 1.0, encoded."""


class Converted091(NamedTuple):
    """A message for 0-9-1. `exchange` and `routing_key` are what a RabbitMQ says that it was published to."""

    properties: bytes
    body: bytes
    exchange: bytes
    routing_key: bytes
    is_redelivered: bool
    lost: frozenset[Loss]


class Converted10(NamedTuple):
    """A message for AMQP 1.0."""

    message: bytes
    lost: frozenset[Loss]


# Names that mean something in one of the protocols, or that say more of a message than the other protocol can

_EXCHANGE: Final = b"x-exchange"
_ROUTING_KEY: Final = b"x-routing-key"
_TYPE: Final = b"x-basic-type"
_CC: Final = b"x-cc"
_RECEIVED: Final = b"x-opt-rabbitmq-received-time"
_DEATHS: Final = b"x-opt-deaths"
_NESTED: Final = b"x-opt-headers"
_TEXTS: Final = frozenset((_EXCHANGE, _ROUTING_KEY, _TYPE))
_STRUCTURED: Final = frozenset((_RECEIVED, _DEATHS, _NESTED))
_INTERNAL: Final = b"x-basic-"  # of RabbitMQ 3.13, which had no better place for a property
_MESSAGE_ID: Final = b"x-message-id"
_CORRELATION_ID: Final = b"x-correlation-id"
_KEPT: Final = b"x-amqp-1.0-"  # sections of AMQP 1.0 in a header, as RabbitMQ has always read them
_KEPT_PROPERTIES: Final = b"x-amqp-1.0-properties"
_KEPT_APPLICATION: Final = b"x-amqp-1.0-app-properties"
_KEPT_ANNOTATIONS: Final = b"x-amqp-1.0-message-annotations"
_KEPT_FOOTER: Final = b"x-amqp-1.0-footer"
_QUEUES: Final = b"/queues/"
_OLD_QUEUE: Final = b"/queue/"  # as RabbitMQ 3 writes it
_URN: Final = b"urn:uuid:"

# Flags of properties of 0-9-1

_CONTENT_TYPE: Final = FLAGS["content_type"]
_CONTENT_ENCODING: Final = FLAGS["content_encoding"]
_DELIVERY_MODE: Final = FLAGS["delivery_mode"]
_PRIORITY: Final = FLAGS["priority"]
_CORRELATION: Final = FLAGS["correlation_id"]
_REPLY_TO: Final = FLAGS["reply_to"]
_EXPIRATION: Final = FLAGS["expiration"]
_ID: Final = FLAGS["message_id"]
_TIMESTAMP: Final = FLAGS["timestamp"]
_MESSAGE_TYPE: Final = FLAGS["type"]
_USER_ID: Final = FLAGS["user_id"]
_APP_ID: Final = FLAGS["app_id"]
_CLUSTER_ID: Final = FLAGS["cluster_id"]
_FLAG_BYTES: Final = 2

# The fields of AMQP 1.0's header and properties: of each the codes that it may have

_STRINGS: Final = frozenset(b"\xa1\xb1")
_SYMBOLS: Final = frozenset(b"\xa3\xb3")
_BINARIES: Final = frozenset(b"\xa0\xb0")
_UINTS: Final = frozenset(b"\x43\x52\x70")
_BOOLEANS: Final = frozenset(b"\x41\x42\x56")
_UUID: Final = 0x98
_TIMES: Final = frozenset(b"\x83")
_IDS: Final = _STRINGS | _BINARIES | frozenset(b"\x44\x53\x80\x98")
_HEADER_CODES: Final = (_BOOLEANS, frozenset(b"\x50"), _UINTS, _BOOLEANS, _UINTS)
_PROPERTY_CODES: Final = (
    _IDS,
    _BINARIES | _STRINGS,  # a string is what RabbitMQ 3's plugin writes as user-id
    _STRINGS,
    _STRINGS,
    _STRINGS,
    _IDS,
    _SYMBOLS,
    _SYMBOLS,
    _TIMES,
    _TIMES,
    _STRINGS,
    _UINTS,
    _STRINGS,
)
_USER_ID_PLACE: Final = 1
_SECTION: Final = b"\x00\x53"
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


def to_091(message: bytes, found: Sections) -> Converted091:
    """The message for 0-9-1; CodecError if it can't be read, or has more than fits in a header of 0-9-1."""
    if found.body[0] > LARGEST:
        raise CodecError(f"an AMQP 1.0 message with {found.body[0]} bytes before its body: 0-9-1 takes {LARGEST}")
    losses = Losses()
    values: dict[int, bytes] = {}
    headers: dict[bytes, bytes] = {}
    texts = _read_annotations(message, found.message_annotations, headers, losses)
    is_redelivered = _read_header(message, found.header, values, losses)
    _read_properties(message, found.properties, values, headers, losses=losses)
    if found.application_properties[0] < found.application_properties[1]:
        at, after = map_span(message, *_content(message, found.application_properties))
        _read_entries(message, at, after, headers, losses)
    if headers:
        values[HEADERS] = table(headers)
    body, kind = _read_body(message, found, texts.get(_TYPE, b""), losses)
    if kind:
        values[_MESSAGE_TYPE] = _short(kind)
    flags = sum(values)
    properties = b"".join(
        [flags.to_bytes(_FLAG_BYTES, "big"), *(values[flag] for flag in sorted(values, reverse=True))]
    )
    exchange, routing_key = texts.get(_EXCHANGE, b""), texts.get(_ROUTING_KEY, b"")
    return Converted091(properties, body, exchange, routing_key, is_redelivered, frozenset(losses))


def _content(message: bytes, span: tuple[int, int]) -> tuple[int, int]:
    """Where a section's content begins, and where it ends."""
    start, end = span
    return (start + 3 if message[start + 1] == _SECTION[1] else skip(message, start + 1)), end


def _read_annotations(
    message: bytes, span: tuple[int, int], headers: dict[bytes, bytes], losses: Losses
) -> dict[bytes, bytes]:
    """Put annotations into the headers; the exchange, routing key and type by the names that they have there."""
    texts: dict[bytes, bytes] = {}
    if span[0] == span[1]:
        return texts
    at, after = map_span(message, *_content(message, span))
    while at < after:
        name, begin = name_at(message, at, after)
        if name in _STRUCTURED:
            at = skip(message, begin)
            if at <= after and _read_structured(name, message[begin:at], headers, losses):
                continue
        value, at = field_of(message, begin, after, losses)
        if name is None or not name.startswith(b"x-"):
            losses.add(Loss.ANNOTATION)
        elif name in _TEXTS:
            texts[name] = _short_text(value)
        elif not name.startswith(_INTERNAL):
            _put(headers, b"CC" if name == _CC else name, value, losses)
    return texts


def _short_text(field: bytes) -> bytes:
    """Of a string with its tag, if a short string can hold it."""
    text = field[5:]
    return text if field[:1] == b"S" and len(text) <= MAX_SHORT and is_text(text) else b""


def _read_structured(name: bytes | None, raw: bytes, headers: dict[bytes, bytes], losses: Losses) -> bool:
    """False if it is an annotation as any other."""
    if name == _RECEIVED and raw[0] in _TIMES:
        _put(headers, b"timestamp_in_ms", b"l" + raw[1:], losses)
    elif name == _DEATHS and (deaths := _deaths(raw)):
        _put(headers, b"x-death", deaths, losses)
    elif name == _NESTED and raw[0] in MAPS and losses.has_room(len(raw)):
        _read_entries(raw, *map_span(raw, 0, len(raw)), headers, losses)
    else:
        return False
    return True


def _deaths(raw: bytes) -> bytes:
    """What RabbitMQ says of a dead-lettered message, as the header x-death says it; nothing if it is another value."""
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


def _read_entries(message: bytes, at: int, after: int, headers: dict[bytes, bytes], losses: Losses) -> None:
    """A map's entries as headers."""
    while at < after:
        name, at = name_at(message, at, after)
        value, at = field_of(message, at, after, losses)
        _put(headers, name, value, losses)


def _put(headers: dict[bytes, bytes], name: bytes | None, value: bytes, losses: Losses) -> None:
    if name is None or len(name) > MAX_SHORT or name in headers or name.startswith(_KEPT):
        losses.add(Loss.NAME)
    elif value:
        headers[name] = value


def _read_header(message: bytes, span: tuple[int, int], values: dict[int, bytes], losses: Losses) -> bool:
    """True if the message was delivered before."""
    durable, priority, ttl, _, deliveries = _fields(message, span, _HEADER_CODES, losses)
    if durable:
        values[_DELIVERY_MODE] = b"\x02" if durable in {b"\x41", b"\x56\x01"} else b"\x01"
    if priority:
        values[_PRIORITY] = priority[1:]
    if ttl:
        values[_EXPIRATION] = _short(b"%d" % _number(ttl))
    return _number(deliveries) > 0


def _fields(message: bytes, span: tuple[int, int], allowed: tuple[frozenset[int], ...], losses: Losses) -> list[bytes]:
    """The fields of a header or of properties as they are encoded; empty if they are absent."""
    fields = [b""] * len(allowed)
    if span[0] == span[1]:
        return fields
    count, at, after = find_list(message, *_content(message, span))
    if count > len(allowed):
        raise CodecError(f"an AMQP 1.0 section with {count} fields: only {len(allowed)} are known")
    for place in range(count):
        begin = at
        if at < after and message[at] == NULL_CODE:
            at += 1
            continue
        at = skip(message, begin)
        if message[begin] in allowed[place]:
            fields[place] = message[begin:at]
        else:
            losses.add(Loss.PROPERTY)
    if at > after:
        raise CodecError(types.CUT_OFF)
    return fields


def _read_properties(
    message: bytes, span: tuple[int, int], values: dict[int, bytes], headers: dict[bytes, bytes], *, losses: Losses
) -> None:
    """Properties that don't come back as they were go along as a header too, without the user, whom nobody checks
    there."""
    fields = _fields(message, span, _PROPERTY_CODES, losses)
    message_id, user, to, subject, reply_to, correlation, kind, encoding, expiry, created, group, number, back = fields
    are_whole = not (to or subject or expiry or number or back)
    for flag, field in ((_CONTENT_TYPE, kind), (_CONTENT_ENCODING, encoding), (_APP_ID, group)):
        if field:
            are_whole &= _set_text(values, flag, _text(field))
    if message_id:
        are_whole &= _set_id(values, _ID, message_id, headers, _MESSAGE_ID)
    if correlation:
        are_whole &= _set_id(values, _CORRELATION, correlation, headers, _CORRELATION_ID)
    if reply_to:
        are_whole &= _set_reply_to(values, _text(reply_to))
    if created:
        milliseconds = int.from_bytes(created[1:], "big", signed=True)
        if milliseconds >= 0:
            values[_TIMESTAMP] = (milliseconds // 1000).to_bytes(8, "big")
        are_whole &= milliseconds >= 0 and not milliseconds % 1000
    if user and (0 in _text(user) or not _set_text(values, _USER_ID, _text(user))):
        losses.add(Loss.USER_ID)
    if not are_whole:
        fields[_USER_ID_PLACE] = b""
        headers[_KEPT_PROPERTIES] = long_string(_listed(sections.PROPERTIES.code, fields))


def _set_text(values: dict[int, bytes], flag: int, text: bytes) -> bool:
    if len(text) > MAX_SHORT or not is_text(text):
        return False
    values[flag] = _short(text)
    return True


def _set_id(values: dict[int, bytes], flag: int, field: bytes, headers: dict[bytes, bytes], name: bytes) -> bool:
    """True if it comes back as it was."""
    code = field[0]
    if code == _UUID:
        return _set_text(values, flag, uuid_text(field[1:]))
    if code in _STRINGS:
        text = _text(field)
        if _set_text(values, flag, text):
            return _uuid(text) is None
        headers.setdefault(name, long_string(text))
    elif code in _BINARIES:
        headers.setdefault(name, b"x" + long_string(_text(field))[1:])
    else:
        _set_text(values, flag, b"%d" % _number(field))
    return False


def _uuid(text: bytes) -> bytes | None:
    """The UUID that is written in just this way."""
    if not text.startswith(_URN):
        return None
    try:
        raw = bytes.fromhex(text[len(_URN) :].replace(b"-", b"").decode())
    except ValueError:
        return None
    return raw if uuid_text(raw) == text else None


def _set_reply_to(values: dict[int, bytes], text: bytes) -> bool:
    """RabbitMQ's addresses of queues become their names."""
    if text.startswith(_QUEUES):
        quoted = text[len(_QUEUES) :]
        name = unquote_to_bytes(quoted)
        return _set_text(values, _REPLY_TO, name) and _quoted(name) == quoted
    _set_text(values, _REPLY_TO, text.removeprefix(_OLD_QUEUE))
    return False


def _read_body(message: bytes, found: Sections, kind: bytes, losses: Losses) -> tuple[bytes, bytes]:
    """The body, and the type of a message with this one."""
    begin, end = found.body
    if found.body_kind is None:
        return b"", kind
    if found.body_kind != DATA:
        return message[begin : found.footer[1]], ENCODED_BODY
    if found.footer[0] < found.footer[1]:
        losses.add(Loss.FOOTER)
    at, _ = _content(message, found.body)
    if skip(message, at) == end:
        return _text(message[at:end]), kind
    losses.add(Loss.BODY_PARTS)
    return b"".join([part.value for part in sections.values(message, found.body)]), kind


def _text(field: bytes) -> bytes:
    """Of an encoded string, symbol or binary."""
    return field[2:] if field[0] < 0xB0 else field[5:]


def _short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def _number(field: bytes) -> int:
    return int.from_bytes(field[1:], "big")


# To AMQP 1.0


def to_10(properties: bytes, body: bytes, exchange: bytes, routing_key: bytes) -> Converted10:
    """The message for AMQP 1.0, published to this exchange with this key; CodecError if it can't be read."""
    losses = Losses()
    values = dict(Properties.read(properties).values)
    annotations = {_EXCHANGE: string_of(exchange), _ROUTING_KEY: string_of(routing_key)}
    application: dict[bytes, bytes] = {}
    kept: dict[bytes, bytes] = {}
    tail = _body_of(values, body, annotations, losses)
    if HEADERS in values:
        _read_table(values[HEADERS], annotations, application, kept, losses=losses)
    fields = _property_fields(values, losses)
    if kept:
        fields, tail = _restored(kept, fields, annotations, application, tail=tail, losses=losses)
    parts = [_header_of(values, losses), _mapped(sections.MESSAGE_ANNOTATIONS, SYMBOL, annotations)]
    if any(fields):
        parts.append(_listed(sections.PROPERTIES.code, fields))
    if application:
        parts.append(_mapped(sections.APPLICATION_PROPERTIES, STRING, application))
    return Converted10(b"".join([*parts, tail]), frozenset(losses))


def _body_of(values: dict[int, bytes], body: bytes, annotations: dict[bytes, bytes], losses: Losses) -> bytes:
    """The body's sections; what a type of 0-9-1 says becomes an annotation, but for a body of AMQP 1.0."""
    kind = values.get(_MESSAGE_TYPE, b"")[1:]
    if kind == ENCODED_BODY:
        found = _sections_of(body)
        if found is not None and found.body[0] == 0 and found.body_kind is not None:
            return body
    if kind and is_text(kind):
        annotations[_TYPE] = text_of(STRING, kind)
    elif kind:
        losses.add(Loss.PROPERTY)
    return _SECTION + bytes((DATA,)) + text_of(BINARY, body)


def _sections_of(data: bytes) -> Sections | None:
    try:
        return find_sections(data)
    except CodecError:
        return None


def _read_table(
    raw: bytes,
    annotations: dict[bytes, bytes],
    application: dict[bytes, bytes],
    kept: dict[bytes, bytes],
    *,
    losses: Losses,
) -> None:
    """Headers that begin with x- are annotations. Application properties can't be lists or maps: these are kept in an
    annotation of ours."""
    nested: dict[bytes, bytes] = {}
    at, end = 4, len(raw)
    while at < end:
        name, begin = header_name(raw, at, end)
        value, at = value_of(raw, begin, end, losses)
        tag = raw[begin]
        into = application
        if name.startswith(_KEPT):
            kept[name] = raw[begin + 5 : at]
            continue
        if name.startswith(b"x-"):
            into = annotations
        elif tag in {ARRAY, TABLE}:
            if name == b"CC" and tag == ARRAY:
                name, into, value = _CC, annotations, _routing_keys(raw, begin, at, losses)
            else:
                into = nested
        if name in into or not (name.isascii() if into is annotations else is_text(name)):
            losses.add(Loss.NAME)
        elif value:
            into[name] = value
    if nested:
        entries = [part for name, value in nested.items() for part in (text_of(STRING, name), value)]
        annotations.setdefault(_NESTED, compound(MAP, entries))


def _routing_keys(raw: bytes, at: int, end: int, losses: Losses) -> bytes:
    """RabbitMQ detaches the link of a sender whose CC has anything but text."""
    at, _ = span_of(raw, at + 1, end)
    keys = []
    while at < end:
        value, at = value_of(raw, at, end, losses)
        if value and value[0] in _STRINGS:
            keys.append(value)
        else:
            losses.add(Loss.CC)
    return compound(LIST, keys)


def _header_of(values: dict[int, bytes], losses: Losses) -> bytes:
    fields = [b"\x41" if values.get(_DELIVERY_MODE) == b"\x02" else b"\x42"]
    if _PRIORITY in values or _EXPIRATION in values:
        fields.append(b"\x50" + values[_PRIORITY] if _PRIORITY in values else b"")
    if _EXPIRATION in values:
        text = values[_EXPIRATION][1:]
        if text.isdigit() and int(text) < 1 << 32:
            fields.append(b"\x70" + int(text).to_bytes(4, "big"))
        else:
            losses.add(Loss.EXPIRATION)
    return _listed(sections.HEADER.code, fields)


def _property_fields(values: dict[int, bytes], losses: Losses) -> list[bytes]:
    """The fields of AMQP 1.0's properties, encoded; empty if they are absent."""
    fields = [b""] * len(_PROPERTY_CODES)
    for flag, place, encode in _PLACES:
        if flag in values:
            field = encode(values[flag][1:])
            if field:
                fields[place] = field
            else:
                losses.add(Loss.PROPERTY)
    if _TIMESTAMP in values:
        fields[_CREATED_PLACE] = milliseconds_of(values[_TIMESTAMP], losses)
    if _CLUSTER_ID in values:
        losses.add(Loss.CLUSTER_ID)
    return fields


def _id(text: bytes) -> bytes:
    uuid = _uuid(text)
    return _string(text) if uuid is None else bytes((_UUID,)) + uuid


def _string(text: bytes) -> bytes:
    return text_of(STRING, text) if is_text(text) else b""


def _symbol(text: bytes) -> bytes:
    return text_of(SYMBOL, text) if text.isascii() else b""


def _quoted(name: bytes) -> bytes:
    return quote_from_bytes(name, safe="").encode()


_PLACES: Final[tuple[tuple[int, int, Callable[[bytes], bytes]], ...]] = (
    (_ID, 0, _id),
    (_USER_ID, _USER_ID_PLACE, lambda text: text_of(BINARY, text)),
    (_REPLY_TO, 4, lambda text: text_of(STRING, _QUEUES + _quoted(text))),
    (_CORRELATION, 5, _id),
    (_CONTENT_TYPE, 6, _symbol),
    (_CONTENT_ENCODING, 7, _symbol),
    (_APP_ID, 10, _string),
)
_CREATED_PLACE: Final = 9


def _restored(
    kept: dict[bytes, bytes],
    fields: list[bytes],
    annotations: dict[bytes, bytes],
    application: dict[bytes, bytes],
    *,
    tail: bytes,
    losses: Losses,
) -> tuple[list[bytes], bytes]:
    """The fields of the properties, and the body, with what headers have kept of a message of AMQP 1.0."""
    for name, raw in kept.items():
        found = _sections_of(raw)
        whole = (0, len(raw))
        try:
            if found is None or not raw:
                losses.add(Loss.NAME)
            elif name == _KEPT_PROPERTIES and found.properties == whole:
                former = _fields(raw, whole, _PROPERTY_CODES, losses)
                fields = [*former[:_USER_ID_PLACE], fields[_USER_ID_PLACE], *former[_USER_ID_PLACE + 1 :]]
                annotations.pop(_MESSAGE_ID, None)
                annotations.pop(_CORRELATION_ID, None)
            elif name == _KEPT_APPLICATION and found.application_properties == whole:
                _restore(application, raw, whole)
            elif name == _KEPT_ANNOTATIONS and found.message_annotations == whole:
                _restore(annotations, raw, whole)
            elif name == _KEPT_FOOTER and found.footer == whole and find_sections(tail).footer[0] == len(tail):
                sections.pairs(raw, whole)
                tail += raw
            else:
                losses.add(Loss.NAME)
        except CodecError:
            losses.add(Loss.NAME)
    return fields, tail


def _restore(entries: dict[bytes, bytes], raw: bytes, span: tuple[int, int]) -> None:
    """Add what a section holds, but for names that have something newer."""
    at, after = map_span(raw, *_content(raw, span))
    while at < after:
        name, begin = name_at(raw, at, after)
        _, at = types.decode(raw, begin, end=after)
        if name is not None and name.isascii():
            entries.setdefault(name, raw[begin:at])


def _listed(code: int, fields: list[bytes]) -> bytes:
    """A section that is a list of fields; empty ones are absent."""
    items = [field or b"\x40" for field in fields]
    while items and items[-1] == b"\x40":
        items.pop()
    return _SECTION + bytes((code,)) + types.encode_list(items)


def _mapped(code: int, key: int, entries: dict[bytes, bytes]) -> bytes:
    """A section that is a map of names and encoded values."""
    items = [part for name, value in entries.items() for part in (text_of(key, name), value)]
    return _SECTION + bytes((code,)) + compound(MAP, items)
