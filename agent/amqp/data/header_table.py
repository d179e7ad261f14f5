"""Changes of a headers table as bytes: an entry added, replaced, renamed or removed, and every other byte kept.

Tables are walked by their lengths and only as far as the name that is searched, in time that grows with their size
alone. Tables are passed and returned with their length in front. Raises CodecError if what has to be read isn't valid.
"""

from __future__ import annotations

import struct
from typing import Final

from agent.amqp.data.table_scan import Entry, Names
from agent.amqp.wire.tables import encode_value, short_string
from agent.core.fields import Field

_U32: Final = struct.Struct(">I")
_ARRAY: Final = ord("A")


def entry(name: str, value: Field) -> bytes:
    """Encode an entry: its name, tag and value."""
    return short_string(name) + encode_value(value)


def text_entry(name: str, value: bytes) -> bytes:
    """Encode a text entry whose value comes from a peer and may be any bytes."""
    return short_string(name) + b"S" + _U32.pack(len(value)) + value


def find(table: bytes, names: Names) -> Entry | None:
    """The first entry with one of the names; None if there is none."""
    return names.find(table, 4, len(table))


def value_of(table: bytes, names: Names) -> bytes | None:
    """The tag and the value of the first entry with one of the names; None if there is none."""
    found = find(table, names)
    return None if found is None else table[found.value : found.after]


def with_first(table: bytes, entries: bytes) -> bytes:
    """The table with `entries` before all others."""
    return _table(entries, table[4:])


def without(table: bytes, names: Names) -> bytes:
    """The table without all entries of these names."""
    kept, at = [], 4
    while (found := names.find(table, at, len(table))) is not None:
        kept.append(table[at : found.begin])
        at = found.after
    return _table(*kept, table[at:]) if kept else table


def replaced(table: bytes, names: Names, entries: bytes) -> bytes:
    """The table with `entries` in place of the first entry of these names, or before all others if there is none."""
    found = find(table, names)
    if found is None:
        return with_first(table, entries)
    return _table(table[4 : found.begin], entries, table[found.after :])


def renamed(table: bytes, names: Names, name: str) -> bytes:
    """The table with another name for the first entry of these names, at its place and with its value."""
    found = find(table, names)
    if found is None:
        return table
    return _table(table[4 : found.begin], short_string(name), table[found.value :])


def with_first_item(table: bytes, name: str, item: bytes) -> bytes:
    """The table with `item` (tag and value) first in the array of that name; in a new array before all other entries if
    there is none.

    A value of another type is replaced.
    """
    names = Names(name)
    found = find(table, names)
    items = b""
    if found is not None and table[found.value] == _ARRAY:
        items = table[found.value + 5 : found.after]
    array = short_string(name) + b"A" + _U32.pack(len(item) + len(items)) + item + items
    return replaced(table, names, array)


def _table(*entries: bytes) -> bytes:
    size = sum(map(len, entries))
    return b"".join([_U32.pack(size), *entries])
