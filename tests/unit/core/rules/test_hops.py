"""How far messages and bindings travel, and which bindings there are upstream."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import example, given

from agent.core import fields
from agent.core.fields import Field, Table
from agent.core.model import Binding
from agent.core.rules import hops
from agent.core.rules.hops import (
    BOUND_FROM,
    INVALID_HEADERS,
    RECEIVED_FROM,
    GroupedBinding,
    Route,
    Site,
    Verdict,
    bound_entry,
    difference,
)
from tests.unit.core import strategies
from tests.unit.core.hop_rules import judge

DOWNSTREAM = Site("down", "/")
UPSTREAM = Site("up", "/")


def entry(cluster: str, vhost: str = "/") -> Field:
    return hops.received_entry("amqp://h", "x", redelivered=False, upstream=Site(cluster, vhost))


def received(*entries: Field) -> Table:
    return ((RECEIVED_FROM, fields.array(*entries)),)


def test_a_message_without_the_header_goes_on_whatever_max_hops_says() -> None:
    assert judge((), 1, DOWNSTREAM) is Verdict.FORWARD


def test_a_message_stops_at_max_hops_or_where_it_has_been() -> None:
    assert judge(received(entry("a")), 1, DOWNSTREAM) is Verdict.MAX_HOPS
    assert judge(received(entry("a")), 2, DOWNSTREAM) is Verdict.FORWARD
    assert judge(received(entry("a"), entry("down")), 5, DOWNSTREAM) is Verdict.VISITED
    assert judge(received(entry("a"), entry("down", "other")), 5, DOWNSTREAM) is Verdict.FORWARD


def test_an_entry_tells_where_it_was_in_the_native_plugins_order() -> None:
    full = hops.received_entry("amqp://h:1/%2f", "logs", redelivered=True, upstream=Site("up", "v"))
    assert [key for key, _ in full.value] == ["uri", "exchange", "redelivered", "cluster-name", "vhost"]
    assert [value.tag for _, value in full.value] == ["S", "S", "t", "S", "S"]
    nameless = hops.received_entry("amqp://h", "logs", redelivered=False, upstream=Site(None, "v"))
    assert [key for key, _ in nameless.value] == ["uri", "exchange", "redelivered", "vhost"]


@given(strategies.values, st.integers(1, 5))
def test_no_forged_header_breaks_the_judgement(value: Field, max_hops: int) -> None:
    headers: Table = ((RECEIVED_FROM, value),)
    verdict = judge(headers, max_hops, DOWNSTREAM)
    if value.tag != "A":
        assert verdict is Verdict.FORWARD
    assert judge((), max_hops, DOWNSTREAM) is Verdict.FORWARD


@given(strategies.any_table, st.one_of(st.none(), strategies.values))
def test_an_entry_goes_first_and_nothing_else_is_lost(headers: Table, standing: Field | None) -> None:
    others = fields.without(fields.without(headers, RECEIVED_FROM), INVALID_HEADERS)
    before = others if standing is None else (*others, (RECEIVED_FROM, standing))
    after = hops.with_entry(before, RECEIVED_FROM, entry("up"))
    array = fields.get(after, RECEIVED_FROM)
    assert array is not None
    assert array.tag == "A"
    assert array.value[0] == entry("up")
    assert fields.without(fields.without(after, RECEIVED_FROM), INVALID_HEADERS) == others
    if standing is not None and standing.tag == "A":
        assert array.value[1:] == standing.value
    elif standing is not None:
        kept = fields.get(after, INVALID_HEADERS)
        assert kept == fields.table(((RECEIVED_FROM, fields.array(standing)),))


@given(strategies.values)
def test_whatever_stands_in_the_invalid_headers_is_kept(standing: Field) -> None:
    before: Table = ((RECEIVED_FROM, fields.text("junk")), (INVALID_HEADERS, standing))
    after = fields.get(hops.with_entry(before, RECEIVED_FROM, entry("up")), INVALID_HEADERS)
    assert after is not None
    assert after.tag == "F"
    newest = fields.get(after.value, RECEIVED_FROM)
    assert newest is not None
    assert newest.value[0] == fields.text("junk")


@given(strategies.values)
@example(fields.array(fields.table((("hops", fields.text("7")),))))
@example(fields.array(fields.long(7)))
def test_no_forged_binding_header_breaks_the_count(value: Field) -> None:
    assert 0 <= hops.binding_hops(((BOUND_FROM, value),), 3, UPSTREAM) <= 3


def bound(left: int, *clusters: str) -> Table:
    return ((BOUND_FROM, fields.array(*(hops.bound_entry(Site(c, "/"), "/:x A", left) for c in clusters))),)


def test_a_bindings_hops_count_down_and_stop_where_it_has_been() -> None:
    assert hops.binding_hops((), 3, UPSTREAM) == 3
    assert hops.binding_hops(bound(3, "c"), 3, UPSTREAM) == 2
    assert hops.binding_hops(bound(9, "c"), 3, UPSTREAM) == 3
    assert hops.binding_hops(bound(1, "c"), 3, UPSTREAM) == 0
    assert hops.binding_hops(bound(3, "c", "up"), 3, UPSTREAM) == 0
    assert hops.binding_hops(((BOUND_FROM, fields.array(fields.table((("hops", fields.long(3)),)))),), 9, UPSTREAM) == 2


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_a_binding_travels_back_exactly_as_far_as_a_message_travels_forth(chain: list[int]) -> None:
    """Sites 0 → 1 → … → n, link i from site i to i+1 with its own max-hops; the binding is made at the end."""
    sites = [Site(f"c{i}", "/") for i in range(len(chain) + 1)]
    for origin in range(len(chain)):
        assert _binding_reaches(origin, chain, sites) == _message_reaches_the_end(origin, chain, sites)


def _message_reaches_the_end(origin: int, chain: list[int], sites: list[Site]) -> bool:
    headers: Table = ()
    for i in range(origin, len(chain)):
        if judge(headers, chain[i], sites[i + 1]) is not Verdict.FORWARD:
            return False
        headers = hops.with_entry(
            headers, RECEIVED_FROM, hops.received_entry("amqp://h", "x", redelivered=False, upstream=sites[i])
        )
    return True


def _binding_reaches(origin: int, chain: list[int], sites: list[Site]) -> bool:
    arguments: Table = ()
    for i in reversed(range(origin, len(chain))):
        left = hops.binding_hops(arguments, chain[i], sites[i])
        if left == 0:
            return False
        arguments = hops.with_entry(arguments, BOUND_FROM, hops.bound_entry(sites[i + 1], "/:x A", left))
    return True


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
