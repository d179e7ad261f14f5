"""Tables and properties as anyone may send them."""

from __future__ import annotations

from hypothesis import strategies as st

from agent.amqp.wire.properties import HEADERS, USER_ID, Properties
from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.fields import Field, Table

INTEGERS = {"b": 8, "B": 8, "s": 16, "u": 16, "I": 32, "i": 32, "l": 64, "L": 64}
names = st.text(st.characters(codec="utf-8"), max_size=20)


def integers(tag: str) -> st.SearchStrategy[Field]:
    bits = INTEGERS[tag]
    low, high = (0, 2**bits - 1) if tag in "Bui" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(low, high).map(lambda value: Field(tag, value))


scalars: st.SearchStrategy[Field] = st.one_of(
    *(integers(tag) for tag in INTEGERS),
    st.text(max_size=20).map(lambda text: Field("S", text)),
    st.booleans().map(lambda value: Field("t", value)),
    st.binary(max_size=20).map(lambda value: Field("x", value)),
    st.binary(min_size=8, max_size=8).map(lambda raw: Field("d", raw)),
    st.binary(min_size=4, max_size=4).map(lambda raw: Field("f", raw)),
    st.binary(min_size=5, max_size=5).map(lambda raw: Field("D", raw)),
    st.integers(0, 2**64 - 1).map(lambda value: Field("T", value)),
    st.just(Field("V", None)),
)


def as_table(entries: dict[str, Field]) -> Table:
    return tuple(entries.items())


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: fields.array(*items)),
        st.dictionaries(names, inner, max_size=4).map(as_table).map(fields.table),
    ),
    max_leaves=12,
)
tables = st.dictionaries(names, values, max_size=6).map(as_table)
short = st.text(st.characters(codec="utf-8"), max_size=20).map(lambda text: bytes([len(text.encode())]) + text.encode())
octet = st.binary(min_size=1, max_size=1)


def properties_with(headers: st.SearchStrategy[Table]) -> st.SearchStrategy[Properties]:
    others = dict.fromkeys((0x8000, 0x4000, 0x0400, 0x0200, 0x0100, 0x0080, 0x0020, USER_ID, 0x0008, 0x0004), short)
    fixed = {0x1000: octet, 0x0800: octet, 0x0040: st.binary(min_size=8, max_size=8)}
    some = st.fixed_dictionaries({}, optional={**others, **fixed, HEADERS: headers.map(encode_table)})
    meaningless = st.integers(0, 3)
    return st.builds(
        lambda found, bits: Properties(sum(found) | bits, tuple(sorted(found.items(), reverse=True))), some, meaningless
    )


properties = properties_with(tables)
