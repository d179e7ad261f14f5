from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent.core import fields
from agent.core.bindings import Difference, Group, LiveGroups, Route, difference
from agent.core.fields import Table
from agent.core.hops import BOUND_FROM, Site, bound_entry
from agent.core.model import Binding
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


class Upstream(RuleBasedStateMachine):
    """Replays what the agent asks of a broker that knows only sets of bindings."""

    def __init__(self) -> None:
        super().__init__()
        self.live: set[Binding] = set()
        self.groups = LiveGroups(ROUTE, "A")
        self.broker: set[Group] = set()

    @rule(binding=bindings)
    def bind(self, binding: Binding) -> None:
        self.live.add(binding)
        group = self.groups.added(binding)
        if group is not None:
            assert group not in self.broker
            self.broker.add(group)

    @rule(binding=bindings)
    def unbind(self, binding: Binding) -> None:
        self.live.discard(binding)
        group = self.groups.removed(binding)
        if group is not None:
            self.broker.remove(group)

    @rule(truth=st.lists(bindings, max_size=6))
    def read_whole(self, truth: list[Binding]) -> None:
        self.live = set(truth)
        self._apply(self.groups.replaced(truth))

    def _apply(self, change: Difference) -> None:
        assert not set(change.bind) & self.broker
        assert set(change.unbind) <= self.broker
        self.broker |= set(change.bind)
        self.broker -= set(change.unbind)

    @invariant()
    def upstream_has_exactly_the_distinct_live_groups(self) -> None:
        assert self.broker == ROUTE.groups(self.live, "A") == self.groups.groups
        assert len(self.groups) == len(self.broker)


TestUpstream = Upstream.TestCase


def test_queue_and_exchange_destinations_share_a_group() -> None:
    both = [Binding("k", (), "q"), Binding("k", (), "x", destination_is_exchange=True), Binding("k", (), "q2")]
    (group,) = ROUTE.groups(both, "B")
    entry = bound_entry(Site("down", "/"), "/:orders B", 2)
    assert group == Group("k", ((BOUND_FROM, fields.array(entry)),))


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


@given(st.sets(st.builds(Group, strategies.few_names)), st.sets(st.builds(Group, strategies.few_names)))
def test_a_difference_leads_from_one_to_the_other(bound: set[Group], wanted: set[Group]) -> None:
    change = difference(bound=frozenset(bound), wanted=frozenset(wanted))
    assert (bound | set(change.bind)) - set(change.unbind) == wanted
    assert bool(change) == (bound != wanted)
