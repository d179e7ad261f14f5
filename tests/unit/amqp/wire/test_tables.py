from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire.properties import HEADERS, USER_ID, Properties
from agent.amqp.wire.tables import CodecError, decode_table, encode_table, encode_value
from agent.core import fields
from agent.core.fields import Field, Table
from tests.unit.amqp.wire.strategies import properties, tables

names = st.text(st.characters(codec="utf-8"), max_size=20)


@given(tables)
def test_a_table_survives_its_bytes_tag_for_tag(table: Table) -> None:
    data = encode_table(table)
    assert decode_table(b"xx" + data + b"yy", 2) == (table, 2 + len(data))


@given(tables)
def test_decoding_and_encoding_again_gives_the_same_bytes(table: Table) -> None:
    data = encode_table(table)
    assert encode_table(decode_table(data)[0]) == data


@given(
    st.binary(max_size=60) | tables.map(encode_table).flatmap(lambda good: st.binary().map(lambda bad: good[:7] + bad))
)
def test_garbage_is_a_table_or_an_error(data: bytes) -> None:
    try:
        table, end = decode_table(data)
    except CodecError:
        return
    assert encode_table(table) == data[:end]


@given(st.dictionaries(names, st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.text(max_size=9) | st.none()))
def test_another_codec_reads_and_writes_the_same(plain: dict[str, Any]) -> None:
    theirs = pamqp.encode.field_table(plain)
    table, end = decode_table(theirs)
    assert end == len(theirs)
    assert {key: field.value for key, field in table} == plain
    assert encode_table(table) == theirs
    assert pamqp.decode.field_table(encode_table(table))[1] == plain


def test_another_codec_agrees_on_times_and_nesting() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    theirs = pamqp.encode.field_table({"when": moment, "deep": {"list": [1, "two", {"three": 3}]}})
    table, _ = decode_table(theirs)
    assert dict(table)["when"] == Field("T", int(moment.timestamp()))
    assert pamqp.decode.field_table(encode_table(table))[1]["deep"] == {"list": [1, "two", {"three": 3}]}


@pytest.mark.parametrize("tag", [b"A", b"F"])
def test_tables_nested_without_end_are_kept_as_they_are(tag: bytes) -> None:
    """Brokers take any depth."""
    deep = b"V"
    for _ in range(5_000):
        inside = deep if tag == b"A" else b"\x01k" + deep
        deep = tag + len(inside).to_bytes(4, "big") + inside
    data = (len(deep) + 2).to_bytes(4, "big") + b"\x01k" + deep
    for depth in (1, 2, 64):
        table, end = decode_table(data, depth=depth)
        assert end == len(data)
        assert encode_table(table) == data
        assert fields.table_to_json(table).keys() == {"k"}


@pytest.mark.parametrize("field", [Field("l", 2**63), Field("Z", 1), Field("s", 40_000), Field("B", -1)])
def test_what_has_no_bytes_is_an_error(field: Field) -> None:
    with pytest.raises(CodecError):
        encode_value(field)


def test_a_name_longer_than_a_short_string_is_an_error() -> None:
    with pytest.raises(CodecError, match="255"):
        encode_table((("ä" * 128, fields.text("x")),))


@given(properties)
def test_properties_survive_their_bytes(original: Properties) -> None:
    assert Properties.read(original.write()) == original


@given(properties, tables)
def test_only_what_is_changed_changes(original: Properties, table: Table) -> None:
    changed = Properties.read(original.with_raw_headers(encode_table(table)).write())
    assert changed.headers == table
    assert [pair for pair in changed.values if pair[0] != HEADERS] == [
        pair for pair in original.values if pair[0] != HEADERS
    ]
    bare = Properties.read(original.lacking(USER_ID).write())
    assert bare.flags == original.flags & ~USER_ID
    assert bare.headers == original.headers


@given(st.binary(max_size=40))
def test_garbage_is_properties_or_an_error(data: bytes) -> None:
    try:
        found = Properties.read(data)
    except CodecError:
        return
    assert found.write() == data
