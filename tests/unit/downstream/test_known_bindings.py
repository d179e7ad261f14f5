"""Readings of bindings that overtake one another, and changes that no answer has yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.model import Binding
from agent.downstream.known_bindings import Change, KnownBindings

X, Y = ("/", "x"), ("/", "y")
A, B, C = (Binding(key, destination="q") for key in "abc")


def test_what_was_asked_for_later_stays_in_force_and_reaches_links_that_asked_earlier() -> None:
    """A new link's reading may end after a later one of the same exchange: it needs what is known, all the same."""
    known = KnownBindings()
    early, late = known.ask(), known.ask()
    assert known.learn(late, {X: [A, B]}) == {X: {A, B}}
    assert known.learn(early, {X: [A], Y: [C]}) == {X: {A, B}, Y: {C}}


def test_what_changed_while_it_was_read_is_in_force() -> None:
    known = KnownBindings()
    known.learn(known.ask(), {X: [A, B]})
    reading = known.ask()
    assert known.change([Change(X, C)]) == {X: {A, B, C}}
    assert known.change([Change(X, A, is_gone=True)]) == {X: {B, C}}
    assert known.learn(reading, {X: [A, B]}) == {X: {B, C}}
    assert known.learn(known.ask(), {X: [A]}) == {X: {A}}, "what is read later is the truth"


def test_nothing_is_known_of_what_was_never_read() -> None:
    known = KnownBindings()
    assert known.change([Change(X, A)]) == {}
    reading = known.ask()
    assert known.change([Change(X, B)]) == {}
    assert known.learn(reading, {X: [A]}) == {X: {A, B}}, "it came while the exchange was read for the first time"


def test_what_is_being_read_is_known_until_the_answer_is_there() -> None:
    known = KnownBindings()
    first, second = known.ask([X]), known.ask([X, Y])
    assert known.asked == {X, Y}
    known.forget(second)
    assert known.asked == {X}
    known.learn(first, {X: [A]})
    assert known.asked == frozenset()


@given(st.lists(st.sampled_from(["ask", "answer", "fail", "add", "remove"]), max_size=30), st.data())
def test_changes_that_are_told_in_order_are_never_lost(steps: list[str], data: st.DataObject) -> None:
    known, truth = KnownBindings(), frozenset[Binding]()
    known.learn(known.ask(), {X: truth})
    asked: list[int] = []
    seen: dict[int, frozenset[Binding]] = {}
    for step in steps:
        if step == "ask":
            asked.append(known.ask())
            seen[asked[-1]] = truth
        elif step in {"answer", "fail"} and asked:
            number = asked.pop(data.draw(st.integers(0, len(asked) - 1)))
            if step == "answer":
                known.learn(number, {X: seen[number]})
            else:
                known.forget(number)
        elif step in {"add", "remove"}:
            binding = data.draw(st.sampled_from([A, B, C]))
            truth = truth - {binding} if step == "remove" else truth | {binding}
            assert known.change([Change(X, binding, is_gone=step == "remove")]) == {X: truth}
    assert known.learn(known.ask(), {X: truth}) == {X: truth}
    assert len(known._changes) <= len(steps) + 1
