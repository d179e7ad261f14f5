"""Properties of AMQP 1.0 as those of 0-9-1 and back, each as the bytes that it is on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from agent.amqp.wire.properties import CONTENT_ENCODING, CONTENT_TYPE, FLAGS, USER_ID
from agent.amqp.wire.tables import MAX_SHORT, CodecError
from agent.amqp10 import sections, types
from agent.amqp10.conversion.values import (
    BINARY,
    STRING,
    SYMBOL,
    Loss,
    Losses,
    is_text,
    long_string,
    milliseconds_of,
    text_of,
    uuid_text,
)
from agent.amqp10.types import NULL_CODE, find_list, skip

CORRELATION_ID: Final = FLAGS["correlation_id"]
REPLY_TO: Final = FLAGS["reply_to"]
MESSAGE_ID: Final = FLAGS["message_id"]
TIMESTAMP: Final = FLAGS["timestamp"]
APP_ID: Final = FLAGS["app_id"]
CLUSTER_ID: Final = FLAGS["cluster_id"]

MESSAGE_ID_HEADER: Final = b"x-message-id"
CORRELATION_ID_HEADER: Final = b"x-correlation-id"
KEPT_PROPERTIES: Final = b"x-amqp-1.0-properties"
"""Headers of RabbitMQ's: the first two hold ids that 0-9-1 has no room for, the third a section of AMQP 1.0."""

_QUEUES: Final = b"/queues/"
_OLD_QUEUE: Final = b"/queue/"  # as RabbitMQ 3 writes it
_URN: Final = b"urn:uuid:"
_SECTION: Final = b"\x00\x53"
_NULL: Final = bytes((NULL_CODE,))

# What codes a field may have

STRINGS: Final = frozenset(b"\xa1\xb1")
TIMES: Final = frozenset(b"\x83")
BOOLEANS: Final = frozenset(b"\x41\x42\x56")
UBYTES: Final = frozenset(b"\x50")
UINTS: Final = frozenset(b"\x43\x52\x70")
_SYMBOLS: Final = frozenset(b"\xa3\xb3")
_BINARIES: Final = frozenset(b"\xa0\xb0")
_UUID: Final = 0x98
_IDS: Final = STRINGS | _BINARIES | frozenset(b"\x44\x53\x80\x98")

PROPERTIES: Final = (
    _IDS,
    _BINARIES | STRINGS,  # as a string the plugin of RabbitMQ 3 writes the user-id
    STRINGS,
    STRINGS,
    STRINGS,
    _IDS,
    _SYMBOLS,
    _SYMBOLS,
    TIMES,
    TIMES,
    STRINGS,
    UINTS,
    STRINGS,
)
"""Of message-id, user-id, to, subject, reply-to, correlation-id, content-type, content-encoding, absolute-expiry-time,
creation-time, group-id, group-sequence and reply-to-group-id."""
USER_ID_PLACE: Final = 1
_CREATED_PLACE: Final = 9


def content(message: bytes, span: tuple[int, int]) -> tuple[int, int]:
    """The beginning and end of a section's content."""
    start, end = span
    return (start + 3 if message[start + 1] == _SECTION[1] else skip(message, start + 1)), end


def fields_of(
    message: bytes, span: tuple[int, int], allowed: tuple[frozenset[int], ...], losses: Losses
) -> list[bytes]:
    """The fields of a section as they are encoded; empty if they are absent, or have none of the codes for them."""
    fields = [b""] * len(allowed)
    if span[0] == span[1]:
        return fields
    count, at, after = find_list(message, *content(message, span))
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


def section_of(code: int, fields: list[bytes]) -> bytes:
    """A section with these fields; empty ones are absent."""
    items = [field or _NULL for field in fields]
    while items and items[-1] == _NULL:
        items.pop()
    return _SECTION + bytes((code,)) + types.encode_list(items)


def text_in(field: bytes) -> bytes:
    """The bytes of an encoded string, symbol or binary, without code and length."""
    return field[2:] if field[0] < 0xB0 else field[5:]


def number_in(field: bytes) -> int:
    """The value of an encoded number without a sign."""
    return int.from_bytes(field[1:], "big")


def short(text: bytes) -> bytes:
    """As a short string of 0-9-1."""
    return bytes((len(text),)) + text


# To 0-9-1


def to_properties(
    message: bytes, span: tuple[int, int], values: dict[int, bytes], headers: dict[bytes, bytes], losses: Losses
) -> None:
    """Add the properties that 0-9-1 has, by their flags. If these alone don't bring all back, all go along in a header
    too: but for the user, whom no broker checks there."""
    fields = fields_of(message, span, PROPERTIES, losses)
    message_id, user, to, subject, reply_to, correlation, kind, encoding, expiry, created, group, number, back = fields
    are_whole = not (to or subject or expiry or number or back)
    for flag, field in ((CONTENT_TYPE, kind), (CONTENT_ENCODING, encoding), (APP_ID, group)):
        if field:
            are_whole &= _set_text(values, flag, text_in(field))
    if message_id:
        are_whole &= _set_id(values, MESSAGE_ID, message_id, headers, MESSAGE_ID_HEADER)
    if correlation:
        are_whole &= _set_id(values, CORRELATION_ID, correlation, headers, CORRELATION_ID_HEADER)
    if reply_to:
        are_whole &= _set_reply_to(values, text_in(reply_to))
    if created:
        are_whole &= _set_time(values, int.from_bytes(created[1:], "big", signed=True))
    if user and (name := text_in(user)) and (0 in name or not _set_text(values, USER_ID, name)):
        losses.add(Loss.USER_ID)
    if not are_whole:
        fields[USER_ID_PLACE] = b""
        headers[KEPT_PROPERTIES] = long_string(section_of(sections.PROPERTIES.code, fields))


# These return whether the property comes back as it was.


def _set_text(values: dict[int, bytes], flag: int, text: bytes) -> bool:
    if len(text) > MAX_SHORT or not is_text(text):
        return False
    values[flag] = short(text)
    return True


def _set_id(values: dict[int, bytes], flag: int, field: bytes, headers: dict[bytes, bytes], name: bytes) -> bool:
    code = field[0]
    if code == _UUID:
        return _set_text(values, flag, uuid_text(field[1:]))
    if code in STRINGS:
        text = text_in(field)
        if _set_text(values, flag, text):
            return _uuid(text) is None
        headers.setdefault(name, long_string(text))
    elif code in _BINARIES:
        headers.setdefault(name, b"x" + long_string(text_in(field))[1:])
    else:
        _set_text(values, flag, b"%d" % number_in(field))
    return False


def _set_reply_to(values: dict[int, bytes], text: bytes) -> bool:
    """RabbitMQ's addresses of queues become their names."""
    if text.startswith(_QUEUES):
        quoted = text[len(_QUEUES) :]
        name = unquote_to_bytes(quoted)
        return _set_text(values, REPLY_TO, name) and _quoted(name) == quoted
    _set_text(values, REPLY_TO, text.removeprefix(_OLD_QUEUE))
    return False


def _set_time(values: dict[int, bytes], milliseconds: int) -> bool:
    if milliseconds < 0:
        return False
    values[TIMESTAMP] = (milliseconds // 1000).to_bytes(8, "big")
    return not milliseconds % 1000


def _uuid(text: bytes) -> bytes | None:
    """The UUID that is written in just this way."""
    if not text.startswith(_URN):
        return None
    try:
        raw = bytes.fromhex(text[len(_URN) :].replace(b"-", b"").decode())
    except ValueError:
        return None
    return raw if uuid_text(raw) == text else None


# To AMQP 1.0


def to_fields(values: dict[int, bytes], losses: Losses) -> list[bytes]:
    """The fields of AMQP 1.0's properties."""
    fields = [b""] * len(PROPERTIES)
    for flag, place, encode in _PLACES:
        if flag in values:
            field = encode(values[flag][1:])
            if field:
                fields[place] = field
            else:
                losses.add(Loss.PROPERTY)
    if TIMESTAMP in values:
        fields[_CREATED_PLACE] = milliseconds_of(values[TIMESTAMP], losses)
    if CLUSTER_ID in values:
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
    (MESSAGE_ID, 0, _id),
    (USER_ID, USER_ID_PLACE, lambda text: text_of(BINARY, text)),
    (REPLY_TO, 4, lambda text: text_of(STRING, _QUEUES + _quoted(text))),
    (CORRELATION_ID, 5, _id),
    (CONTENT_TYPE, 6, _symbol),
    (CONTENT_ENCODING, 7, _symbol),
    (APP_ID, 10, _string),
)
