"""Which headers rules may not touch: those that links write, and those that brokers act on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.data.quarantined import Why, enclosed
from agent.amqp.data.rewriting import Delivery, Rewriter, rewritten
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.fields import Table
from agent.core.rules.headers import MOST_BYTES, MOST_RULES, PROBE, problem_of_removed, problem_of_set, size_of
from tests.unit.amqp.data.test_rewriting import KINDS
from tests.unit.amqp.wire.link import with_table

X = fields.text("x")
texts = st.text(st.characters(codec="utf-8"), max_size=20)
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_tables = st.dictionaries(texts, json_values, max_size=4).map(fields.table_from_json)


def named(*names: str) -> Table:
    return tuple((name, X) for name in names)


def written_by(rewriter: Rewriter, *headers: str) -> set[str]:
    sent = with_table(*named(*headers))
    found = rewritten(rewriter, sent, Delivery(b"x", b"k", redelivered=False))
    assert isinstance(found, Properties)
    return {name for name, _ in found.headers}


def test_what_links_write_can_be_neither_set_nor_removed() -> None:
    """Whatever a kind writes, and the quarantine; a new header belongs into the list."""
    names = {PROBE}
    for kind in KINDS.values():
        names |= written_by(kind())
        names |= written_by(kind(), "x-received-from", "x-shovelled", "CC")
    why = Why("refused", "id", 1, b"x", b"k", b"y", b"l")
    everything = with_table(*named("CC", "BCC")).replaced(((0x0100, b"\1e"), (0x0010, b"\1u")))
    for kept in (everything.write(), b"\0", Properties(HEADERS, ((HEADERS, encode_table(named("a" * 99))),)).write()):
        room = 500 if kept == everything.write() else 90
        names |= {name for name, _ in Properties.read(enclosed(kept, why, room=room)).headers} - {"a" * 99}
    assert len(names) > 15
    for name in names:
        assert name in problem_of_set(named(name)), name
        assert name in problem_of_removed([name]), name
        assert problem_of_removed([name[:-1] + "*"]), name


@pytest.mark.parametrize("name", ["x-death", "x-first-death-queue", "x-last-death-reason", "x-delivery-count"])
def test_what_brokers_count_by_can_be_removed_and_not_set(name: str) -> None:
    assert name in problem_of_set(named("a", name))
    assert not problem_of_removed([name, "x-death*"])


@pytest.mark.parametrize(
    "pattern", ["*", "x-*", "x-q*", "x-quarantine-mine*", "x-quarantine-mine", "C*", "BCC*", "x-original-*"]
)
def test_a_pattern_that_would_match_one_is_refused(pattern: str) -> None:
    assert repr(pattern) in problem_of_removed(["a", pattern])


def test_names_are_compared_to_the_byte() -> None:
    fine = (
        "cc",
        "Cc",
        "X-Shovelled",
        "x-received",
        "x-received-from-",
        "x-quarantine",
        "x-shovelled-",
        "x-original",
        "x",
    )
    assert not problem_of_set(named(*fine))
    assert not problem_of_removed(fine)
    assert not problem_of_removed(["x-r-*", "a*", "x-shovelled-x*", "xa*"])


def test_nothing_that_makes_no_sense() -> None:
    assert problem_of_set(named("")) == problem_of_removed([""]) == "a name must not be empty"
    for pattern in ("a*b", "**", "*a"):
        assert "only at the end" in problem_of_removed([pattern])


def test_rules_are_bounded() -> None:
    many = [f"h{number}" for number in range(MOST_RULES + 1)]
    assert problem_of_set(named(*many)) == problem_of_removed(many).replace("names", "headers") != ""
    assert not problem_of_set(named(*many[1:])) + problem_of_removed(many[1:])
    room = MOST_BYTES - size_of(named("a")) + 1
    assert not problem_of_set((("a", fields.text("x" * room)),))
    assert "2,049 bytes" in problem_of_set((("a", fields.text("x" * (room + 1))),))


@given(json_tables)
def test_sizes_are_those_on_the_wire(table: Table) -> None:
    assert 4 + size_of(table) == len(encode_table(table))
