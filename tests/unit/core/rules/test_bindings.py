from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from agent.core import fields
from agent.core.fields import Table
from agent.core.model import Binding
from agent.core.rules.bindings import GroupedBinding, Route, difference
from agent.core.rules.hops import BOUND_FROM, Site, bound_entry
from tests.unit.core import strategies

ROUTE = Route(Site("up", "/"), Site("down", "/"), "orders", max_hops=2)

arguments: st.SearchStrategy[Table] = st.one_of(
    st.just(()),
    st.sampled_from(
        [
            (("x-match", fields.text("all")), ("type", fields.text("read"))),
            (("type", fields.text("read")), ("x-match", fields.text("all"))),
            (("x-match", fields.text("any")),),
            ((BOUND_FROM, fields.array(bound_entry(Site("far", "/"), "/:x A", 3))),),
            ((BOUND_FROM, fields.array(bound_entry(Site("far", "/"), "/:x A", 1))),),
            ((BOUND_FROM, fields.array(bound_entry(Site("up", "/"), "/:x A", 3))),),
        ]
    ),
)
bindings = st.builds(Binding, strategies.few_names, arguments, st.sampled_from(["q1", "q2", "x1"]), st.booleans())


@given(st.lists(bindings, max_size=6), bindings)
def test_a_group_stays_bound_as_long_as_it_has_a_member(others: list[Binding], gone: Binding) -> None:
    wanted = ROUTE.groups(others, "A")
    change = difference(bound=ROUTE.groups([*others, gone], "A"), wanted=wanted)
    assert change.bind == ()
    assert set(change.unbind) == ROUTE.groups([gone], "A") - wanted


def test_queue_and_exchange_destinations_share_a_group() -> None:
    both = [Binding("k", (), "q"), Binding("k", (), "x", destination_is_exchange=True), Binding("k", (), "q2")]
    (group,) = ROUTE.groups(both, "B")
    entry = bound_entry(Site("down", "/"), "/:orders B", 2)
    assert group == GroupedBinding("k", ((BOUND_FROM, fields.array(entry)),))


def test_the_order_of_arguments_makes_no_other_group() -> None:
    one = (("a", fields.long(1)), ("z", fields.long(2)))
    assert len(ROUTE.groups([Binding("k", one, "q"), Binding("k", one[::-1], "r")], "A")) == 1


def test_a_binding_that_came_from_afar_keeps_its_way() -> None:
    far = bound_entry(Site("far", "/"), "/:x A", 3)
    (group,) = ROUTE.groups([Binding("k", ((BOUND_FROM, fields.array(far)),), "x")], "A")
    header = fields.get(group.arguments, BOUND_FROM)
    assert header == fields.array(bound_entry(Site("down", "/"), "/:orders A", 2), far)


def test_a_binding_without_hops_left_or_from_the_upstream_itself_stays_here() -> None:
    spent = Binding("k", ((BOUND_FROM, fields.array(bound_entry(Site("far", "/"), "/:x A", 1))),), "x")
    back = Binding("k", ((BOUND_FROM, fields.array(bound_entry(Site("up", "/"), "/:x A", 3))),), "x")
    assert ROUTE.groups([spent, back], "A") == frozenset()


@given(
    st.sets(st.builds(GroupedBinding, strategies.few_names)), st.sets(st.builds(GroupedBinding, strategies.few_names))
)
def test_a_difference_leads_from_one_to_the_other(bound: set[GroupedBinding], wanted: set[GroupedBinding]) -> None:
    change = difference(bound=frozenset(bound), wanted=frozenset(wanted))
    assert (bound | set(change.bind)) - set(change.unbind) == wanted
    assert bool(change) == (bound != wanted)
