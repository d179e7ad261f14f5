"""Tables that are walked, held against tables that are decoded."""

from __future__ import annotations

import time

from hypothesis import example, given
from hypothesis import strategies as st

from agent.amqp.data.header_table import Names, check_table, without
from agent.amqp.wire.tables import CodecError, decode_table, encode_table, encode_value
from agent.core import fields
from agent.core.fields import Field, Table
from tests.unit.amqp.wire.strategies import tables, values

NAME = "searched"
OTHER = "other"
NAMES = Names(NAME, OTHER)
long_ones = st.tuples(
    st.integers(0, 255).map(lambda size: "n" * size), st.integers(0, 300).map(lambda size: fields.text("v" * size))
)


@given(tables, tables, st.lists(long_ones, max_size=3), st.none() | values)
@example((("n" * 63, fields.text("v" * 63)),), (("n" * 64, fields.text("v" * 64)),), [], fields.boolean(True))
@example((), ((OTHER, fields.boolean(True)),), [], None)
def test_the_first_entry_of_a_name_is_found(
    before: Table, after: Table, between: list[tuple[str, Field]], value: Field | None
) -> None:
    there = () if value is None else ((NAME, value),)
    table = (*before, *between, *there, *after)
    data = encode_table(table)
    expected = next(((name, each) for name, each in table if name in {NAME, OTHER}), None)
    found = NAMES.find(data, 4, len(data))
    if expected is None:
        assert found is None
        return
    assert found is not None
    begin, at, end = found
    name, wanted = expected
    assert data[begin:at] == bytes((len(name),)) + name.encode()
    assert data[at:end] == encode_value(wanted)


BEGINNINGS = ("se", "n" * 62)
SEVERAL = Names(NAME, OTHER, "", prefixes=BEGINNINGS)


@given(
    tables, st.lists(long_ones | st.tuples(st.sampled_from([NAME, OTHER, "", "s", "se", "set"]), values), max_size=9)
)
@example((), [(OTHER, fields.text("v" * 64)), (OTHER, fields.text("v")), ("s", fields.boolean(True))])
def test_all_entries_of_names_and_beginnings_are_left_out(before: Table, more: list[tuple[str, Field]]) -> None:
    table = (*before, *more)
    kept = tuple(
        (name, value) for name, value in table if name not in {NAME, OTHER, ""} and not name.startswith(BEGINNINGS)
    )
    assert without(encode_table(table), SEVERAL) == encode_table(kept)


def test_of_very_many_entries_each_takes_no_time() -> None:
    began = time.process_time()
    for entries in (b"\5otherV" * 30_000, b"\5otherV\0V" * 20_000, b"\2sxV" * 50_000):
        without(len(entries).to_bytes(4, "big") + entries, SEVERAL)
    assert time.process_time() - began < 1.0  # it takes 0.05 s where nothing else runs


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A table of which a few bytes are others."""
    data = bytearray(encode_table(draw(tables)))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255) | st.sampled_from(b"SAFxVt\0"))
    return bytes(data)


@given(damaged() | st.binary(max_size=40).map(lambda data: len(data).to_bytes(4, "big") + data))
@example(b"")
@example(b"\0\0\0\2\1k")
@example(b"\0\0\0\1\0")
def test_what_can_be_decoded_is_what_passes_the_check(data: bytes) -> None:
    try:
        is_table = decode_table(data)[1] == len(data)
    except (CodecError, IndexError):
        is_table = False
    try:
        check_table(data)
        passes = True
    except CodecError:
        passes = False
    assert passes is is_table


def test_no_depth_is_too_deep() -> None:
    data = b"V"
    for _ in range(5_000):
        data = b"A" + len(data).to_bytes(4, "big") + data
    entry = b"\1k" + data
    check_table(len(entry).to_bytes(4, "big") + entry)
