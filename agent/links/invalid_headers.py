"""Keeps an `x-received-from` or `x-shovelled` that isn't a list in another header; anyone may forge them.

All of it is done on tables as bytes, which are walked by their lengths.

Why: docs/decisions/0005-invalid-headers-kept.md
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.wire.tables import short_string
from agent.core.rules.hops import INVALID_HEADERS, RECEIVED_FROM

_U32: Final = struct.Struct(">I")
_TABLE: Final = ord("F")
_INVALID: Final = Names(INVALID_HEADERS)


def keep_invalid(headers: bytes, value: bytes, *, name: str = RECEIVED_FROM) -> bytes:
    """The headers with `value`, that of a header called `name` which isn't an array, put into `x-invalid-headers`
    before those that are there."""
    found = header_table.find(headers, _INVALID)
    if found is None:
        return table(headers[4:], _invalid(b"", value, name=name))
    standing = headers[found.value : found.after]
    if standing[0] != _TABLE:
        invalid = _invalid(short_string(INVALID_HEADERS) + array(standing), value, name=name)
    else:
        kept = standing[1:]
        earlier = header_table.value_of(kept, _names(name)) or b""
        others = header_table.without(kept, _names(name))[4:]
        invalid = _invalid(others, value + (earlier[5:] if earlier[:1] == b"A" else earlier), name=name)
    return table(headers[4 : found.begin], invalid, headers[found.after :])


def array(items: bytes) -> bytes:
    """An array of these items, with its tag."""
    return b"A" + _U32.pack(len(items)) + items


def table(*entries: bytes) -> bytes:
    """A table of these entries, with its length."""
    size = sum(map(len, entries))
    return b"".join([_U32.pack(size), *entries])


def _invalid(others: bytes, values: bytes, *, name: str) -> bytes:
    return short_string(INVALID_HEADERS) + b"F" + table(others, short_string(name), array(values))


@cache
def _names(name: str) -> Names:
    return Names(name)
