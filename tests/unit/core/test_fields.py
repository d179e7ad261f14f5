from __future__ import annotations

import json

import pytest
from hypothesis import given

from agent.core.fields import Field, Table, from_tagged, to_tagged
from tests.unit.core.strategies import any_table


@given(any_table)
def test_what_comes_back_is_equal(table: Table) -> None:
    assert repr(from_tagged(json.loads(json.dumps(to_tagged(table))))) == repr(table)


@pytest.mark.parametrize("bad", [None, 1, [1], [["a"]], [["a", ["S"]]], [["a", ["F", 1]]], [["a", [1, 2]]]])
def test_what_somebody_else_wrote(bad: object) -> None:
    with pytest.raises(ValueError, match="not a table"):
        from_tagged(bad)


def test_bytes_keep_their_tag() -> None:
    table = (("a", Field("x", b"\xff\0")), ("b", Field("V", None)))
    assert from_tagged(to_tagged(table)) == table
