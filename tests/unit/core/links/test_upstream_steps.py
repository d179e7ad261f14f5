"""Steps, carried out on a model of a broker: whatever exists before, and wherever they are interrupted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.upstream_steps import (
    Connect,
    DeleteInternal,
    EnsureCanary,
    EnsureExchange,
    EnsureInternal,
    EnsureQueue,
    Known,
    QueueSeen,
    Seen,
    Step,
    Verb,
    Wanted,
    upstream_steps,
)
from agent.core.model import Binding
from agent.core.rules.hops import GroupedBinding, Route, Site
from agent.core.rules.names import LETTERS
from tests.unit.core.some_links import exchange_link

UP = Site("up", "/")
WANTED = Wanted(exchange_link(), Route(UP, Site("down", "/"), "x", 1))
KEYS = st.frozensets(st.sampled_from("abcd"))


def known(letter: str, bound: frozenset[GroupedBinding]) -> Known:
    return Known(UP, WANTED.queue, letter, WANTED.internal_arguments, bound)


@dataclass
class Broker:
    """Internal exchanges by letter, with what is bound to them; those in `other` have other arguments."""

    exchange: bool = False
    queue: bool = False
    canary: bool = False
    bound: dict[str, set[GroupedBinding]] = field(default_factory=dict)
    queue_bound_to: set[str] = field(default_factory=set)
    other: set[str] = field(default_factory=set)
    known: Known | None = None

    def seen(self) -> Seen:
        queue = QueueSeen(0, 0) if self.queue else None
        letters = tuple(letter for letter in LETTERS if letter in self.bound)
        return Seen(self.exchange, queue, letters, self.canary, self.known)

    def do(self, step: Step, bindings: frozenset[Binding]) -> bool:
        """False where an internal exchange turns out to be another than it should be."""
        match step:
            case EnsureExchange():
                self.exchange = True
            case EnsureQueue():
                self.queue = True
            case EnsureCanary():
                self.canary = True
            case EnsureInternal(verb, letter, bound):
                assert (letter in self.bound) == (verb is Verb.KEEP)
                if letter in self.other:
                    return False
                self.bound.setdefault(letter, set())
                if self.known is None or (self.known.letter, self.known.bound) != (letter, bound):
                    self.known = None
            case Connect(letter, _, more_may_be):
                change = step.change(WANTED, bindings)
                self.bound[letter] |= set(change.bind)
                self.bound[letter] -= set(change.unbind)
                self.queue_bound_to.add(letter)
                self.known = None if more_may_be else known(letter, WANTED.groups(bindings, letter))
            case DeleteInternal(letter):
                del self.bound[letter]
                self.queue_bound_to.discard(letter)
                self.other.discard(letter)
        return True

    def run(self, bindings: frozenset[Binding], most: int = 99) -> int:
        """As a session does it; answers how many steps it took."""
        done, seen = 0, self.seen()
        while True:
            for step in upstream_steps(WANTED, seen):
                if done == most:
                    return done
                if not self.do(step, bindings):
                    assert isinstance(step, EnsureInternal)
                    seen = seen.without(step.letter)
                    break
                done += 1
            else:
                return done

    def keys(self) -> set[str]:
        """Those whose messages reach the queue now."""
        return {group.routing_key for letter in self.queue_bound_to for group in self.bound[letter]}


def bindings_of(keys: frozenset[str]) -> frozenset[Binding]:
    return frozenset(Binding(key, (), "q") for key in keys)


@st.composite
def brokers(draw: st.DrawFn) -> Broker:
    bound = {
        letter: {GroupedBinding(key) for key in draw(KEYS)}
        for letter in draw(st.sampled_from([(), ("A",), ("B",), ("A", "B")]))
    }
    some = st.sets(st.sampled_from(sorted(bound))) if bound else st.just(set[str]())
    return Broker(draw(st.booleans()), True, draw(st.booleans()), bound, draw(some), draw(some))


@given(brokers(), KEYS)
def test_whatever_exists_ends_with_exactly_what_is_wanted(broker: Broker, keys: frozenset[str]) -> None:
    broker.run(bindings_of(keys))
    [(letter, bound)] = broker.bound.items()
    assert bound == WANTED.groups(bindings_of(keys), letter)
    assert broker.queue_bound_to == {letter}
    assert (broker.exchange, broker.queue, broker.canary) == (True, True, True)


@given(brokers(), KEYS, st.integers(0, 12), st.booleans())
def test_a_session_that_is_interrupted_is_completed_by_the_next(
    broker: Broker, keys: frozenset[str], at: int, knows: bool
) -> None:
    broker.run(bindings_of(keys), most=at)
    if not knows:  # another process, say
        broker.known = None
    broker.run(bindings_of(keys))
    [(letter, bound)] = broker.bound.items()
    assert bound == WANTED.groups(bindings_of(keys), letter)


@given(KEYS, KEYS, st.integers(0, 12), st.booleans())
def test_what_is_wanted_before_and_after_flows_all_the_time(
    before: frozenset[str], after: frozenset[str], at: int, knows: bool
) -> None:
    broker = Broker()
    broker.run(bindings_of(before))
    if not knows:
        broker.known = None
    broker.run(bindings_of(after), most=at)
    assert before & after <= broker.keys()


@given(brokers(), KEYS)
def test_what_is_settled_needs_no_change(broker: Broker, keys: frozenset[str]) -> None:
    bindings = bindings_of(keys)
    broker.run(bindings)
    for step in upstream_steps(WANTED, broker.seen()):
        match step:
            case Connect():
                assert not step.change(WANTED, bindings)
            case DeleteInternal():
                raise AssertionError(step)
            case _:
                assert step.verb is Verb.KEEP


def test_what_is_known_of_another_upstream_or_under_other_arguments_is_of_no_use() -> None:
    here = known("A", frozenset())
    for other in (replace(here, site=Site("other", "/")), replace(here, arguments=()), replace(here, queue="another")):
        steps = upstream_steps(WANTED, Seen(True, QueueSeen(0, 0), ("A",), known=other))
        assert EnsureInternal(Verb.CREATE, "B") in steps


def test_a_new_exchange_has_none_of_the_known_bindings() -> None:
    seen = Seen(False, QueueSeen(0, 0), ("A",), known=known("A", frozenset({GroupedBinding("a")})))
    steps = upstream_steps(WANTED, seen)
    assert Connect("A", frozenset()) in steps


def test_an_exchange_whose_canary_is_gone_may_be_another_so_what_is_known_is_of_no_use() -> None:
    bound = replace(known("A", frozenset({GroupedBinding("a")})), has_canary=True)
    seen = Seen(True, QueueSeen(0, 0), ("A",), known=bound)
    assert EnsureInternal(Verb.CREATE, "B") in upstream_steps(WANTED, seen)
    assert EnsureInternal(Verb.KEEP, "A", bound.bound) in upstream_steps(WANTED, replace(seen, canary_exists=True))
    assert Connect("A", frozenset()) in upstream_steps(WANTED, replace(seen, exchange_exists=False))


def test_what_the_broker_refused_is_not_announced_again() -> None:
    large = GroupedBinding("large")
    here = replace(known("A", frozenset()), left_out=WANTED.groups(bindings_of(frozenset({"a"})), "A") | {large})
    steps = upstream_steps(WANTED, Seen(True, QueueSeen(0, 0), ("A",), known=replace(here, canary_is_refused=True)))
    assert not any(isinstance(step, EnsureCanary) for step in steps)
    [connect] = [step for step in steps if isinstance(step, Connect)]
    change = connect.change(WANTED, bindings_of(frozenset({"a", "b"})))
    assert ([group.routing_key for group in change.bind], change.unbind) == (["b"], ())
