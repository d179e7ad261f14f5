"""What hypothesis draws the domain's values from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agent.core import fields
from agent.core.fields import Field, Table

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
few_names = st.sampled_from(["a", "b", "orders", "orders.#"])

scalars: st.SearchStrategy[Field] = st.one_of(
    st.builds(fields.text, st.text(max_size=10)),
    st.builds(fields.long, st.integers(-(2**63), 2**63 - 1)),
    st.builds(fields.short, st.integers(-(2**15), 2**15 - 1)),
    st.builds(fields.boolean, st.booleans()),
    st.just(Field("V", None)),
)


def _containers(inner: st.SearchStrategy[Field]) -> st.SearchStrategy[Field]:
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda items: fields.array(*items)),
        tables(inner).map(fields.table),
    )


def tables(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Table]:
    return st.dictionaries(names, values, max_size=3).map(lambda entries: tuple(entries.items()))


values: st.SearchStrategy[Field] = st.recursive(scalars, _containers, max_leaves=6)
any_table = tables(values)
