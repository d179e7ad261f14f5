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


def said(source: ClusterObjects, target: ClusterObjects | None = None, *, exchanges: str = ".*") -> dict[str, str]:
    """The traps' reasons, by the names of their objects."""
    selection = selecting(choice("^q"), exchanges=exchanges)
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
    assert {key.name: each.to_quorum for key, each in agreeing.queues.items()} == {"a": False, "ab": True}


def test_a_vhost_that_isnt_there_and_a_pattern_without_end() -> None:
    with pytest.raises(ConfigurationError, match="the source has no vhost 'w'"):
        choose(cluster(), {"w": ALL["v"]})
    slow = cluster(queues=[queue("a" * 60 + "b")])
    with pytest.raises(ConfigurationError, match="takes too long"):
        choose(slow, selecting(choice("^(a|aa)+$")))
