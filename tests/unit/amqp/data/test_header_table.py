"""Headers changed as bytes, beside the same changes of decoded tables."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.wire.tables import CodecError, decode_table, encode_table
from agent.core import fields
from agent.core.fields import Field, Table
from tests.unit.amqp.wire.strategies import names, values

CC = Names("CC")
tables: st.SearchStrategy[Table] = st.lists(
    st.tuples(st.sampled_from(["CC", "x-original-cc"]) | names, values), max_size=5
).map(tuple)
ADDED = ("x-original-exchange", fields.text("e"))


def at_first(table: Table) -> int:
    return next((place for place, (name, _) in enumerate(table) if name == "CC"), -1)


@given(tables)
def test_each_change_is_that_of_the_decoded_table(table: Table) -> None:
    raw, place = encode_table(table), at_first(table)
    before, after = table[: max(place, 0)], table[place + 1 :]
    entry = header_table.entry(*ADDED)
    assert header_table.with_first(raw, entry) == encode_table((ADDED, *table))
    assert header_table.without(raw, CC) == encode_table(fields.without(table, "CC"))
    assert header_table.replaced(raw, CC, entry) == encode_table((*before, ADDED, *after))
    renamed = table if place < 0 else (*before, ("x-original-cc", table[place][1]), *after)
    assert header_table.renamed(raw, CC, "x-original-cc") == encode_table(renamed)
    value = header_table.value_of(raw, CC)
    assert value == (None if place < 0 else header_table.entry(*table[place])[3:])


@given(tables, values)
def test_an_item_is_put_before_those_of_an_array(table: Table, item: Field) -> None:
    raw, place = encode_table(table), at_first(table)
    found = header_table.with_first_item(raw, "CC", header_table.entry("", item)[1:])
    earlier = table[place][1].value if place >= 0 and table[place][1].tag == "A" else ()
    if isinstance(earlier, tuple):
        made = ("CC", fields.array(item, *earlier))
        assert found == encode_table((*table[: max(place, 0)], made, *table[place + 1 :]))


def test_text_of_a_peer_may_be_any_bytes() -> None:
    table = header_table.with_first(b"\0\0\0\0", header_table.text_entry("k", b"\xff\x00"))
    assert decode_table(table)[0] == (("k", fields.text("\udcff\0")),)


@pytest.mark.parametrize("table", [b"\0\0\0\x02\x05a", b"\0\0\0\x03\x01kZ", b"\0\0\0\x07\x02CCS\xff\xff\xff"])
def test_what_nobody_can_read_is_an_error(table: bytes) -> None:
    with pytest.raises(CodecError):
        header_table.without(table, CC)


@pytest.mark.parametrize("raw", [b"\x02CCV" * 25_000, b"\0V" * 50_000, (b"\x40" + b"n" * 64 + b"V") * 1_500])
def test_no_table_takes_long(raw: bytes) -> None:
    table = len(raw).to_bytes(4, "big") + raw
    begun = time.process_time()
    header_table.without(table, CC)
    header_table.renamed(table, CC, "x")
    assert time.process_time() - begun < 1
