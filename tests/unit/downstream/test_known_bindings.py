"""Readings of bindings that overtake one another, and changes that no answer has yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress

from hypothesis import given
from hypothesis import strategies as st

from agent.core.model import Binding
from agent.downstream.bindings import BindingChange, Federated, KnownBindings
from tests.unit.measures import objects_of

X, Y = ("/", "x"), ("/", "y")
A, B, C = (Binding(key, destination="q") for key in "abc")


def read(known: KnownBindings, found: Mapping[Federated, Iterable[Binding]]) -> Mapping[Federated, frozenset[Binding]]:
    with known.reading() as number:
        return known.learn(number, found)


def test_what_was_asked_for_later_stays_in_force_and_reaches_links_that_asked_earlier() -> None:
    """A new link's reading may end after a later one of the same exchange: it needs what is known, all the same."""
    known = KnownBindings()
    with known.reading() as early, known.reading() as late:
        assert known.learn(late, {X: [A, B]}) == {X: {A, B}}
        assert known.learn(early, {X: [A], Y: [C]}) == {X: {A, B}, Y: {C}}


def test_what_changed_while_it_was_read_is_in_force() -> None:
    known = KnownBindings()
    read(known, {X: [A, B]})
    with known.reading() as number:
        assert known.change([BindingChange(X, C)]) == {X: {A, B, C}}
        assert known.change([BindingChange(X, A, is_gone=True)]) == {X: {B, C}}
        assert known.learn(number, {X: [A, B]}) == {X: {B, C}}
    assert read(known, {X: [A]}) == {X: {A}}, "what is read later is the truth"


def test_nothing_is_known_of_what_was_never_read() -> None:
    known = KnownBindings()
    assert known.change([BindingChange(X, A)]) == {}
    with known.reading() as number:
        assert known.change([BindingChange(X, B)]) == {}
        assert known.learn(number, {X: [A]}) == {X: {A, B}}, "it came while the exchange was read for the first time"


def test_what_is_being_read_is_known_until_the_reading_ends_however_it_ends() -> None:
    known = KnownBindings()
    with known.reading([X]) as number:
        with suppress(OSError), known.reading([X, Y]):
            assert [*known.asked] == [{X}, {X, Y}]
            known.change([BindingChange(X, A)])
            raise OSError("reset")
        assert [*known.asked] == [{X}]
        known.learn(number, {X: [A]})
    assert not known.asked
    held = []
    for _ in range(50):
        with known.reading([X]):
            known.change([BindingChange(X, B)])
        held.append(objects_of(known))
    assert held[-1] <= held[0] + 1, "changes are forgotten"


def test_exchanges_that_no_link_federates_any_more_are_forgotten() -> None:
    known = KnownBindings()
    read(known, {X: [A], Y: [B]})
    known.keep(frozenset({Y}))
    assert known.of(X) is None
    assert known.of(Y) == frozenset({B})
    assert known.change([BindingChange(X, C)]) == {}
    assert read(known, {X: [B]}) == {X: {B}}, "federated again, it is read again"


@given(st.lists(st.sampled_from(["ask", "answer", "fail", "add", "remove"]), max_size=30), st.data())
def test_changes_that_are_told_in_order_are_never_lost(steps: list[str], data: st.DataObject) -> None:
    known, truth = KnownBindings(), frozenset[Binding]()
    read(known, {X: truth})
    asked: list[tuple[ExitStack, int, frozenset[Binding]]] = []
    for step in steps:
        if step == "ask":
            reading = ExitStack()
            asked.append((reading, reading.enter_context(known.reading()), truth))
        elif step in {"answer", "fail"} and asked:
            reading, number, seen = asked.pop(data.draw(st.integers(0, len(asked) - 1)))
            if step == "answer":
                known.learn(number, {X: seen})
            reading.close()
        elif step in {"add", "remove"}:
            binding = data.draw(st.sampled_from([A, B, C]))
            truth = truth - {binding} if step == "remove" else truth | {binding}
            assert known.change([BindingChange(X, binding, is_gone=step == "remove")]) == {X: truth}
    assert read(known, {X: truth}) == {X: truth}
