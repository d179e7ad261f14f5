"""What goes wrong later is said before."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.migration.difference import plan_migration
from agent.core.migration.objects import ClusterObjects
from agent.core.migration.releases import ObjectionKind
from agent.core.migration.selection import MovedBy, choose
from agent.errors import ConfigurationError
from tests.unit.core.migration.clusters import (
    ALL,
    NEW,
    binding,
    choice,
    cluster,
    empty,
    exchange,
    policy,
    queue,
    selecting,
)


def said(
    source: ClusterObjects, target: ClusterObjects | None = None, *, exchanges: str = ".*", policies: str = ".*"
) -> dict[str, str]:
    """The traps' reasons, by the names of their objects."""
    selection = selecting(choice("^q"), exchanges=exchanges, policies=policies)
    plan = plan_migration(source, target or empty(), choose(source, selection))
    return {each.key.name: each.reason for each in plan.objections if each.verdict is ObjectionKind.TRAP}


@pytest.mark.parametrize(
    ("lists", "name", "words"),
    [
        ({"exchanges": [exchange("x", "x-delayed-message")]}, "x", "messages that it delays"),
        ({"queues": [queue(x_queue_type="stream")]}, "q", "offsets"),
        ({"queues": [{**queue("own"), "exclusive": True}]}, "own", "exclusive and server-named"),
        ({"queues": [queue("amq.gen-1")]}, "amq.gen-1", "exclusive and server-named"),
        ({"queues": [queue(x_dead_letter_exchange="dlx")]}, "q", "it names the exchange 'dlx'"),
        ({"exchanges": [exchange("x", **{"alternate-exchange": "ae"})]}, "x", "it names the exchange 'ae'"),
        ({"policies": [policy(dead_letter_exchange="dlx")]}, "p", "it names the exchange 'dlx'"),
        ({"queues": [queue(x_dead_letter_exchange="", x_dead_letter_routing_key="d")]}, "q", "it names the queue 'd'"),
        ({"policies": [policy(dead_letter_exchange="", dead_letter_routing_key="d")]}, "p", "it names the queue 'd'"),
        ({"queues": [queue(x_expires=1_000)]}, "q", "deletes it if nobody uses it"),
        ({"queues": [queue("federation-agent: quarantine")]}, "federation-agent: quarantine", "aren't copied"),
        ({"queues": [queue("u", x_internal_purpose="federation")]}, "u", "queues of federation links"),
        ({"queues": [{**queue("m"), "type": "rabbit_mqtt_qos0_queue"}]}, "m", "exclusive and server-named"),
        ({"parameters": None}, "v", "too many to be read"),
        ({"queues": [queue(durable=False)]}, "q", "transient queues"),
        ({"queues": [queue(x_queue_type="quorum")]}, "q", "no x-delivery-limit"),
        ({"queues": [queue(x_queue_version=1)]}, "q", "clients that declare it as before get 406"),
        ({"parameters": [("v", "shovel", "s"), ("v", "shovel", "t")]}, "v", "'shovel' aren't copied: 's', 't'"),
        ({"vhost": {"default_queue_type": "quorum"}, "queues": []}, "", ""),
    ],
)
def test_a_trap(lists: dict[str, Any], name: str, words: str) -> None:
    found = said(cluster(**lists))
    assert words in found[name] if name else not found


def test_exchanges_that_stay_behind() -> None:
    source = cluster(
        queues=[queue("q"), queue("other")],
        exchanges=[exchange("x"), exchange("stays")],
        bindings=[binding("stays", "q"), binding("x", "other"), binding("x", "amq.gen-1"), binding("stays", "other")],
    )
    assert said(source, exchanges="^x") == {
        "q": "the exchange 'stays' stays behind: what it routes here comes by the source only",
        "x": "the queue 'other', which it routes to, stays behind",
    }


def test_what_federation_keeps_is_bound_to_no_trap_that_nobody_can_follow() -> None:
    upstream = queue("u", x_internal_purpose="federation")
    source = cluster(exchanges=[exchange("x")], queues=[upstream], bindings=[binding("x", "u")])
    assert said(source) == {"u": "queues of federation links and of quarantine aren't copied, nor are their messages"}
    logs = cluster(
        queues=[queue()], exchanges=[exchange("amq.rabbitmq.log")], bindings=[binding("amq.rabbitmq.log", "q")]
    )
    [trap] = plan_migration(logs, empty(), choose(logs, ALL)).objections
    assert "only brokers make it" in trap.advice


def with_policies(*policies: dict[str, Any]) -> ClusterObjects:
    return cluster((3, 13, 7), queues=[queue()], policies=policies)


HA = {**policy("mirrors", "^q", ha_mode="all"), "priority": 10}
LIMIT = policy("limits", "^q", max_length=10)


def test_a_policy_that_is_left_out_puts_another_in_force() -> None:
    reason = "policy 'mirrors' is in force at the source, and 'limits' would be at the target"
    assert said(with_policies(HA, LIMIT)) == {"q": reason}
    assert said(with_policies(HA)) == {}, "the objection to the policy says it"


def test_a_policy_that_isnt_chosen_and_one_of_the_target() -> None:
    higher = {**policy("high", "^q", max_length=99), "priority": 10}
    reason = "policy 'high' is in force at the source, and 'limits' would be at the target"
    assert said(with_policies(higher, LIMIT), policies="^limits$") == {"q": reason}
    reason = "policy 'high' is in force at the source, and none would be at the target"
    assert said(with_policies(higher), policies="^limits$") == {"q": reason}
    theirs = cluster(NEW, policies=[{**policy("theirs", "^q", max_length=1), "priority": 99}])
    assert "'theirs' would be" in said(with_policies(LIMIT), theirs)["q"]
    assert "policy none is in force" in said(with_policies(), theirs)["q"]


def test_policies_of_exchanges_and_of_types_of_queues() -> None:
    of_exchanges = {**policy("ae", alternate_exchange="amq.fanout"), "apply-to": "exchanges"}
    source = cluster(exchanges=[exchange("x")], queues=[queue()], policies=[of_exchanges, LIMIT])
    assert said(source) == {}
    assert set(said(source, policies="^limits$")) == {"x"}
    mirrors = {**policy("m", "^q", ha_mode="all", max_length=10), "apply-to": "classic_queues"}
    source = with_policies(mirrors)
    plan = plan_migration(source, empty(), choose(source, selecting(choice(".*", to_quorum=True))))
    assert any("and none would be at the target" in each.reason for each in plan.objections), "it is a quorum queue now"


def test_a_policy_that_cant_be_judged() -> None:
    source = cluster(queues=[queue("q" * 60 + "b")], policies=[policy("slow", "^(q|qq)+$", max_length=1)])
    [reason] = said(source).values()
    assert "isn't known" in reason


def test_a_vhost_with_another_default_type() -> None:
    source = cluster(queues=[queue()])
    target = cluster(NEW, vhost={"default_queue_type": "quorum"})
    assert "classic at the source and quorum at the target" in said(source, target)["v"]


def test_dead_letters_have_an_exchange_that_is_there_already() -> None:
    source = cluster(queues=[queue(x_dead_letter_exchange="dlx")])
    assert said(source, cluster(NEW, exchanges=[exchange("dlx")])) == {}
    assert said(cluster(queues=[queue(x_dead_letter_exchange="")])) == {}


def test_a_queue_moves_in_one_way() -> None:
    source = cluster(queues=[queue("a"), queue("ab")])
    both = selecting(choice("a"), choice("b", MovedBy.QUEUE_LINK, line=7))
    with pytest.raises(ConfigurationError) as error:
        choose(source, both)
    [problem] = error.value.problems
    assert str(problem) == (
        "migration.yaml:7:1: queue 'ab' in vhost 'v' is matched by 'a' (shovel) and by 'b' (queue-link): together they "
        "lose its order; let one match it"
    )
    agreeing = choose(source, selecting(choice("b", to_quorum=True), choice("a")))
    assert {key.name: each.to_quorum for key, each in agreeing.items() if each} == {"a": False, "ab": True}


def test_a_vhost_that_isnt_there_and_a_pattern_without_end() -> None:
    with pytest.raises(ConfigurationError, match="the source has no vhost 'w'"):
        choose(cluster(), {"w": ALL["v"]})
    slow = cluster(queues=[queue("a" * 60 + "b")])
    with pytest.raises(ConfigurationError, match="takes too long"):
        choose(slow, selecting(choice("^(a|aa)+$")))
