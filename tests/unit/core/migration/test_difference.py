"""What a plan does brings the target where it has nothing left to do, and touches nothing that wasn't chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.migration.difference import MigrationVerb, needs, plan_migration, rehearsed
from agent.core.migration.objects import (
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Release,
    exchange_key,
    is_everywhere,
    policy_key,
    queue_key,
    release_of,
    release_text,
    vhost_key,
)
from agent.core.migration.releases import ObjectionKind
from agent.core.migration.selection import choose
from tests.unit.core.migration.clusters import (
    ALL,
    NEW,
    OLD,
    applied,
    binding,
    choice,
    cluster,
    clusters,
    empty,
    exchange,
    policy,
    queue,
    selecting,
)

RELEASES = st.sampled_from([OLD, NEW])
CONVERTING = selecting(choice(".*", to_quorum=True))


@given(RELEASES.flatmap(clusters), RELEASES.flatmap(clusters), st.sampled_from([ALL, CONVERTING]))
def test_after_a_copy_there_is_nothing_left_to_do(
    source: ClusterObjects, target: ClusterObjects, selection: dict[str, object]
) -> None:
    chosen = choose(source, selection)  # type: ignore[arg-type]
    first = plan_migration(source, target, chosen)
    after = applied(target, first)
    second = plan_migration(source, after, chosen)
    assert second.actions == ()
    assert set(second.found) <= set(ObjectKind)
    differing = sum(each.verdict is ObjectionKind.DIFFERS for each in second.objections)
    assert sum(second.found.values()) + differing == len(first.wanted)
    assert after.objects.keys() >= target.objects.keys()


@given(clusters(OLD), RELEASES.flatmap(clusters))
def test_actions_are_chosen_ones_in_an_order_that_works(source: ClusterObjects, target: ClusterObjects) -> None:
    chosen = choose(source, ALL)
    plan = plan_migration(source, target, chosen)
    there = set(target.objects)
    for action in plan.actions:
        assert action.key in chosen
        assert all(each in there or is_everywhere(each) for each in needs(action.key))
        assert (action.verb is MigrationVerb.CHANGE) is (action.key in target.objects)
        assert action.verb is MigrationVerb.CREATE or action.key.kind is ObjectKind.POLICY
        there.add(action.key)


@given(clusters(OLD))
def test_what_a_copy_leaves_out_isnt_refused_again(source: ClusterObjects) -> None:
    """What is copied has nothing in it that a row of the table takes out."""
    copied = applied(empty(), plan_migration(source, empty(), choose(source, ALL)))
    again = plan_migration(copied, empty(), choose(copied, ALL))
    assert not [each for each in again.objections if "copied without" in each.advice]


def test_nothing_of_brokers_and_federation_is_copied() -> None:
    source = cluster(
        queues=[
            queue("amq.gen-1"),
            queue("federation: a -> b", x_internal_purpose="federation"),
            queue("q"),
            {**queue("own"), "exclusive": True},
        ],
        exchanges=[exchange("amq.topic"), exchange(""), exchange("federation-agent: x"), exchange("x")],
        bindings=[binding("amq.topic", "q"), binding("", "q", "q"), binding("x", "amq.gen-1"), binding("x", "q")],
    )
    keys = choose(source, ALL).keys()
    assert {key for key in keys if key.kind is not ObjectKind.BINDING} == {
        vhost_key("v"), exchange_key("v", "x"), queue_key("v", "q"),
    }  # fmt: skip
    assert {key.name for key in keys if key.kind is ObjectKind.BINDING} == {"amq.topic", "x"}


def test_a_mirrored_queue_becomes_a_quorum_queue_where_that_is_asked_for() -> None:
    source = cluster(
        queues=[queue("m", x_max_priority=5, x_max_length=3), queue("plain")],
        policies=[policy("mirrored", "^m", ha_mode="all", max_length=9), policy("only", "^z", ha_mode="all")],
    )
    plan = plan_migration(source, empty(), choose(source, CONVERTING))
    assert plan.wanted[queue_key("v", "m")]["arguments"] == {"x-queue-type": "quorum", "x-max-length": 3}
    assert plan.wanted[queue_key("v", "plain")]["arguments"] == {"x-queue-type": "classic"}
    policies = {key.name: body["definition"] for key, body in plan.wanted.items() if key.kind is ObjectKind.POLICY}
    assert policies == {"mirrored": {"max-length": 9}}, "one of which nothing is left isn't copied"
    reasons = [each.reason for each in plan.objections if each.key.name == "m"]
    assert any(reason.startswith("x-max-priority") for reason in reasons)
    assert any("x-max-priority, x-queue-type" in reason for reason in reasons), "clients get 406"
    kept = plan_migration(source, empty(), choose(source, ALL))
    assert kept.wanted[queue_key("v", "m")]["arguments"]["x-queue-type"] == "classic"


@pytest.mark.parametrize("flags", [{"durable": False}, {"auto_delete": True}])
def test_a_mirrored_queue_that_cant_be_a_quorum_queue_stays_as_it_is(flags: dict[str, bool]) -> None:
    source = cluster(queues=[{**queue("m"), **flags}], policies=[policy(ha_mode="all")])
    plan = plan_migration(source, empty(), choose(source, CONVERTING))
    assert plan.wanted[queue_key("v", "m")] == source.objects[queue_key("v", "m")]
    assert "only durable queues can be quorum queues" in [each.reason for each in plan.objections]


def test_what_differs_is_left_and_named_and_a_policy_is_changed() -> None:
    source = cluster(queues=[queue(x_max_length=1)], exchanges=[exchange()], policies=[policy(max_length=1)])
    target = cluster(NEW, queues=[queue()], exchanges=[exchange(kind="direct")], policies=[policy(max_length=2)])
    plan = plan_migration(source, target, choose(source, ALL))
    assert [(each.verb, each.key.kind) for each in plan.actions] == [(MigrationVerb.CHANGE, ObjectKind.POLICY)]
    found = {each.key.kind: each.reason.rpartition(": ")[2] for each in plan.objections}
    assert found == {ObjectKind.QUEUE: "x-max-length", ObjectKind.EXCHANGE: "type"}
    assert not plan.is_safe


def test_what_cant_be_read_is_left_if_it_is_chosen() -> None:
    source = cluster(queues=[{"name": "q", "durable": True}, queue("other")], bindings=[binding("amq.topic", "q")])
    plan = plan_migration(source, empty(), choose(source, ALL))
    assert list(plan.unread) == [queue_key("v", "q")]
    assert not plan.is_safe
    assert [each.key.kind for each in plan.actions][-1] is ObjectKind.BINDING, "which a copy leaves for want of it"
    others = plan_migration(source, empty(), choose(source, selecting(choice("^other$"))))
    assert others.unread == {}
    assert others.is_safe


def test_what_the_target_has_it_takes_whatever_was_predicted() -> None:
    federated = {**policy("fed", "^x", federation_upstream_set="all"), "apply-to": "exchanges"}
    source = cluster(NEW, policies=[federated])
    assert plan_migration(source, source, choose(source, ALL)).is_safe
    assert not plan_migration(source, empty(), choose(source, ALL)).is_safe


def test_a_rehearsal_takes_predictions_back_and_counts_once() -> None:
    fed = {**policy("fed", "^x", federation_upstream_set="all"), "apply-to": "exchanges"}
    source = cluster(queues=[queue(x_queue_version=1)], policies=[fed, policy("mirrors", ha_mode="all", max_length=1)])
    plan = plan_migration(source, empty(), choose(source, ALL))

    def refused(by: dict[ObjectKey, str]) -> list[tuple[str, str]]:
        found = rehearsed(plan, source.objects, by).objections
        return [(each.key.name, each.reason[:9]) for each in found if each.verdict is ObjectionKind.REFUSED]

    left_out = [("mirrors", "ha-*: Rab"), ("q", "x-queue-v")]
    assert refused({}) == left_out, "a rehearsal hasn't put these as they are"
    assert refused({policy_key("v", "fed"): "no"}) == [("fed", "RabbitMQ "), *left_out]
    assert refused({queue_key("v", "q"): "no"}) == [*left_out, ("q", "no")]


@pytest.mark.parametrize("value", [["a"], {"a": 1}, None])
def test_values_of_any_kind(value: object) -> None:
    names = ("ha-params", "queue-version", "x-queue-version", "x-queue-type")
    every = dict.fromkeys(names, value)
    source = cluster(queues=[{**queue(), "arguments": every}], policies=[{**policy(), "definition": every}])
    plan_migration(source, empty(), choose(source, CONVERTING))


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("4.3.6", (4, 3, 6)),
        ("3.13.0-rc.1", (3, 13, 0)),
        ("4.3", (4, 3, 999)),
        ("4", None),
        ("x.y", None),
        ("4.²", None),
    ],
)
def test_releases(text: str, release: Release | None) -> None:
    assert release_of(text) == release
    if release is not None:
        assert text.startswith(release_text(release))


def test_a_key_says_what_it_is() -> None:
    key = ObjectKey(ObjectKind.BINDING, "v", "x", "q\n", routing_key="k", arguments='{"a": 1}')
    assert str(key) == ("binding from exchange 'x' to queue 'q\\n' with key 'k' and arguments {\"a\": 1} in vhost 'v'")
