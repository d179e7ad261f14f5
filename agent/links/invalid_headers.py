"""What becomes of an `x-received-from` that isn't a list of hops, since anyone may forge it: it is kept beside.

All of it is done on tables as bytes, which are walked by their lengths.
"""

from __future__ import annotations

import struct
from typing import Final

from agent.amqp.data.walk import Names
from agent.amqp.wire.tables import short_string
from agent.core.rules.hops import INVALID_HEADERS, RECEIVED_FROM

_U32: Final = struct.Struct(">I")
_ARRAY: Final = ord("A")
_TABLE: Final = ord("F")
_RECEIVED: Final = Names(RECEIVED_FROM)
_INVALID: Final = Names(INVALID_HEADERS)


def keep_invalid(headers: bytes, value: bytes) -> bytes:
    """With a header of another type in `x-invalid-headers`, before those that are there."""
    found = _INVALID.find(headers, 4, len(headers))
    if found is None:
        return table(headers[4:], _invalid(b"", value))
    begin, at, after = found
    standing = headers[at:after]
    if standing[0] != _TABLE:
        invalid = _invalid(short_string(INVALID_HEADERS) + array(standing), value)
    else:
        others, earlier = _without_received(standing)
        invalid = _invalid(others, value + earlier)
    return table(headers[4:begin], invalid, headers[after:])


def array(items: bytes) -> bytes:
    """With its tag."""
    return b"A" + _U32.pack(len(items)) + items


def table(*entries: bytes) -> bytes:
    """With its length."""
    size = sum(map(len, entries))
    return b"".join([_U32.pack(size), *entries])


def _invalid(others: bytes, values: bytes) -> bytes:
    return short_string(INVALID_HEADERS) + b"F" + table(others, short_string(RECEIVED_FROM), array(values))


def _without_received(standing: bytes) -> tuple[bytes, bytes]:
    """The other entries of a table (with its tag), and the values that the first of ours has."""
    others: list[bytes] = []
    earlier: bytes | None = None
    at = 5
    while (found := _RECEIVED.find(standing, at, len(standing))) is not None:
        others.append(standing[at : found.begin])
        if earlier is None:
            kept = standing[found.value : found.after]
            earlier = kept[5:] if kept[0] == _ARRAY else kept
        at = found.after
    return b"".join([*others, standing[at:]]), earlier or b""
