"""Headers as bytes: a table is searched, checked and changed without decoding its values, and every other byte is kept.

Tables are walked by their lengths and only as far as the name that is searched, in time that grows with their size
alone. A table of 128 KiB may hold 60,000 entries. So runs of entries are passed over by a regular expression, which
takes a twentieth of what a loop would take; only a name or value of 64 bytes or more costs a step of its own.

Tables are passed and returned with their length in front. Raises CodecError if what has to be read isn't valid.

Why: docs/decisions/0004-headers-as-bytes.md, docs/decisions/0005-invalid-headers-kept.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from typing import Final, NamedTuple

from agent.amqp.wire.frames import U32
from agent.amqp.wire.tables import FIXED_WIDTHS, CodecError, encode_value, short_string
from agent.core.fields import Field
from agent.core.rules.hops import INVALID_HEADERS, RECEIVED_FROM

_ARRAY: Final = ord("A")
_RUN: Final = 64  # names and values shorter than that are in runs
_WIDTHS: Final = {ord("V"): 0} | {ord(tag): width for tag, width in FIXED_WIDTHS.items()}
_SIZED: Final = frozenset(b"SxAF")
_TABLE: Final = ord("F")


def _counted(prefix: bytes) -> bytes:
    """A pattern for bytes with their length in front, in one byte after the prefix; a tree, since alternatives are
    tried one by one."""
    sixteens = (
        b"(?=%s[\\x%02x-\\x%02x])(?:%s)"
        % (prefix, at, at + 15, b"|".join(b"%s\\x%02x.{%d}" % (prefix, size, size) for size in range(at, at + 16)))
        for at in range(0, _RUN, 16)
    )
    return b"(?:" + b"|".join(sixteens) + b")"


_NAME: Final = _counted(b"")
_SCALAR: Final = rb"V|[tbB].|[su]..|[Iif].{4}|[lLdT].{8}|D.{5}"
_SIZED_VALUE: Final = _counted(rb"\x00\x00\x00")
_PLAIN_ENTRIES: Final = re.compile(b"(?:%s(?:%s|[Sx]%s))*+" % (_NAME, _SCALAR, _SIZED_VALUE), re.DOTALL)
_PLAIN_ITEMS: Final = re.compile(b"(?:%s|[Sx]%s)*+" % (_SCALAR, _SIZED_VALUE), re.DOTALL)


class Entry(NamedTuple):
    """The offsets where an entry begins, where its value begins (with the tag), and where the entry ends."""

    begin: int
    value: int
    after: int


class Names:
    """Names that a table is searched for, and beginnings of names."""

    def __init__(self, *names: str, prefixes: Iterable[str] = ()) -> None:
        searched = b"|".join([*(re.escape(short_string(name)) for name in names), *map(_name_with_prefix, prefixes)])
        self._searched = re.compile(searched, re.DOTALL)
        self._run = re.compile(_run_of(b"(?!%s)" % searched), re.DOTALL)

    @cached_property
    def _runs(self) -> re.Pattern[bytes]:
        """Entries with other names, then entries with these; as many as there are of either."""
        searched = self._searched.pattern
        return re.compile(b"(%s)%s" % (_run_of(b"(?!%s)" % searched), _run_of(b"(?=%s)" % searched)), re.DOTALL)

    def find(self, data: bytes, at: int, end: int) -> Entry | None:
        """Return the first entry from `at` on that has one of the names; raise CodecError if the entries before it
        aren't valid.

        `at` is where an entry begins, `end` where the table ends.
        """
        while True:
            at = _matched(self._run, data, at, end)
            if at >= end:
                return None
            value = at + 1 + data[at]
            if value >= end:
                raise CodecError("a table's entry is cut off")
            after = skip_value(data, value, end)
            if self._searched.match(data, at) is not None:
                return Entry(at, value, after)
            at = after

    def others(self, data: bytes, at: int, end: int) -> Iterator[bytes]:
        """All entries from `at` on that have none of the names, in pieces; raise CodecError if they aren't valid. Also
        where thousands of entries have one, an entry costs no step of its own."""
        while at < end:
            for found in self._runs.finditer(data, at, end):
                if found.end() == at:  # an entry that isn't in a run
                    break
                yield found[1]
                at = found.end()
            if at < end:
                value = at + 1 + data[at]
                if value >= end:
                    raise CodecError("a table's entry is cut off")
                after = skip_value(data, value, end)
                if self._searched.match(data, at) is None:
                    yield data[at:after]
                at = after


def _run_of(condition: bytes) -> bytes:
    """A pattern for entries before each of which this holds."""
    return b"(?:%s%s(?:%s|[SxAF]%s))*+" % (condition, _NAME, _SCALAR, _SIZED_VALUE)


def _name_with_prefix(prefix: str) -> bytes:
    """A pattern for the beginning of an entry whose name begins so; the entry has to be a whole one."""
    encoded = short_string(prefix)
    return b"[\\x%02x-\\xff]%s" % (encoded[0], re.escape(encoded[1:]))


def skip_value(data: bytes, at: int, end: int) -> int:
    """The offset where the value ends whose tag is at `at`; the inside of a table or an array isn't checked."""
    tag = data[at]
    width = _WIDTHS.get(tag)
    if width is not None:
        after = at + 1 + width
    elif tag in _SIZED:
        after = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        if at + 5 > end:
            raise CodecError("a length is cut off")
    else:
        raise CodecError(f"unknown field tag {chr(tag)!r}")
    if after > end:
        raise CodecError("a value is longer than what holds it")
    return after


def check_table(table: bytes) -> None:
    """Check all of a table (with its length), down to the deepest level; raise CodecError if a broker couldn't read
    it."""
    if len(table) < 4 or int.from_bytes(table[:4], "big") != len(table) - 4:
        raise CodecError("a table's length isn't its own")
    ends = [(len(table), True)]  # of what is open: its end, and whether it is a table
    at = 4
    while ends:
        end, is_table = ends[-1]
        at = _matched(_PLAIN_ENTRIES if is_table else _PLAIN_ITEMS, table, at, end)
        if at == end:
            ends.pop()
            continue
        value = at + 1 + table[at] if is_table else at
        if value >= end:
            raise CodecError("a table's entry is cut off")
        after = skip_value(table, value, end)
        if table[value] in {_ARRAY, _TABLE}:
            ends.append((after, table[value] == _TABLE))
            at = value + 5
        else:
            at = after


def _matched(run: re.Pattern[bytes], data: bytes, at: int, end: int) -> int:
    found = run.match(data, at, end)
    return at if found is None else found.end()


def entry(name: str, value: Field) -> bytes:
    """Encode an entry: its name, tag and value."""
    return short_string(name) + encode_value(value)


def text_entry(name: str, value: bytes) -> bytes:
    """Encode a text entry whose value comes from a peer and may be any bytes."""
    return short_string(name) + b"S" + U32.pack(len(value)) + value


def find(table: bytes, names: Names) -> Entry | None:
    """The first entry with one of the names; None if there is none."""
    return names.find(table, 4, len(table))


def value_of(table: bytes, names: Names) -> bytes | None:
    """The tag and the value of the first entry with one of the names; None if there is none."""
    found = find(table, names)
    return None if found is None else table[found.value : found.after]


def with_first(table: bytes, entries: bytes) -> bytes:
    """The table with `entries` before all others."""
    return table_of(entries, table[4:])


def without(table: bytes, names: Names) -> bytes:
    """The table without all entries of these names."""
    return table_of(*names.others(table, 4, len(table)))


def replaced(table: bytes, names: Names, entries: bytes) -> bytes:
    """The table with `entries` in place of the first entry of these names, or before all others if there is none."""
    found = find(table, names)
    if found is None:
        return with_first(table, entries)
    return table_of(table[4 : found.begin], entries, table[found.after :])


def renamed(table: bytes, names: Names, name: str) -> bytes:
    """The table with another name for the first entry of these names, at its place and with its value."""
    found = find(table, names)
    if found is None:
        return table
    return table_of(table[4 : found.begin], short_string(name), table[found.value :])


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
    array = short_string(name) + b"A" + U32.pack(len(item) + len(items)) + item + items
    return replaced(table, names, array)


def table_of(*entries: bytes) -> bytes:
    """A table of these entries, with its length."""
    size = sum(map(len, entries))
    return b"".join([U32.pack(size), *entries])


def array(items: bytes) -> bytes:
    """An array of these items, with its tag."""
    return b"A" + U32.pack(len(items)) + items


_INVALID: Final = Names(INVALID_HEADERS)


def keep_invalid(headers: bytes, value: bytes, *, name: str = RECEIVED_FROM) -> bytes:
    """The headers with `value`, that of a header called `name` which isn't an array, put into `x-invalid-headers`
    before those that are there."""
    found = find(headers, _INVALID)
    if found is None:
        return table_of(headers[4:], _invalid(b"", value, name=name))
    standing = headers[found.value : found.after]
    if standing[0] != _TABLE:
        invalid = _invalid(short_string(INVALID_HEADERS) + array(standing), value, name=name)
    else:
        kept = standing[1:]
        earlier = value_of(kept, _names(name)) or b""
        others = without(kept, _names(name))[4:]
        invalid = _invalid(others, value + (earlier[5:] if earlier[:1] == b"A" else earlier), name=name)
    return table_of(headers[4 : found.begin], invalid, headers[found.after :])


def _invalid(others: bytes, values: bytes, *, name: str) -> bytes:
    return short_string(INVALID_HEADERS) + b"F" + table_of(others, short_string(name), array(values))


@cache
def _names(name: str) -> Names:
    return Names(name)
