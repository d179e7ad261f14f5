"""What a copy needs beyond an ordinary one: bindings that wait, and what is doubtful of queues."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from agent.core.migration.difference import plan_migration
from agent.core.migration.objects import ClusterObjects, ObjectKind, queue_key
from agent.core.migration.selection import choose
from agent.core.standby.copies import (
    TWICE,
    StandbyCopies,
    StandbyGone,
    bindings_as_json,
    bindings_from_json,
    copies_of,
    gone,
    inexact,
    limits_here,
    limits_of,
    still_held_back,
    unmovable,
    without,
    without_federation,
)
from agent.core.standby.settings import StandbySettings
from agent.core.standby.terms import StandingDoubt, trim_terms
from tests.unit.core.migration.clusters import (
    ALL,
    HERE,
    NEW,
    OLD,
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

Q = queue_key("v", "q")


def standby(vhosts: Any = None) -> StandbySettings:
    return StandbySettings("origin", vhosts or ALL, 3600.0, 1800.0, None, HERE)


def found(source: ClusterObjects, wanted: StandbySettings | None = None) -> StandbyCopies:
    settings = wanted or standby()
    plan = plan_migration(source, empty(), choose(source, settings.vhosts), with_traps=False)
    return copies_of(settings, source, plan.wanted, limits_of(source, plan.wanted))


def doubts(*arguments: dict[str, Any], policies: tuple[dict[str, Any], ...] = ()) -> list[str]:
    """Of a queue with these arguments, that an exchange is bound to."""
    lists: dict[str, Any] = {"exchanges": [exchange()], "bindings": [binding("x", "q")], "policies": policies}
    given_arguments = {name: value for each in arguments for name, value in each.items()}
    return [each.doubt for each in found(cluster(OLD, queues=[queue(**given_arguments)], **lists)).doubts]


def test_a_binding_to_an_exchange_with_a_link_waits() -> None:
    inner = {**exchange("inner"), "internal": True}
    source = cluster(
        exchanges=[exchange("x"), exchange("y"), inner],
        queues=[queue()],
        bindings=[
            binding("x", "y", to_exchange=True),
            binding("x", "inner", to_exchange=True),
            binding("inner", "y", to_exchange=True),
            binding("y", "amq.topic", to_exchange=True),
            binding("x", "q"),
        ],
    )
    copies = found(source)
    assert sorted((key.name, key.destination) for key in copies.held_back) == [
        ("inner", "y"),
        ("x", "y"),
        ("y", "amq.topic"),
    ]
    plan = plan_migration(source, empty(), choose(source, ALL), with_traps=False)
    left = without(plan, copies.held_back)
    assert not {action.key for action in left.actions} & {*copies.held_back}
    assert len(left.actions) == len(plan.actions) - 3


def test_a_binding_to_an_exchange_without_a_link_is_made_at_once() -> None:
    source = cluster(
        exchanges=[exchange("x"), {**exchange("inner"), "internal": True}],
        bindings=[binding("x", "inner", to_exchange=True)],
    )
    assert found(source).held_back == ()


@given(clusters(OLD))
def test_what_is_held_back_survives_being_remembered(source: ClusterObjects) -> None:
    plan = plan_migration(source, empty(NEW), choose(source, ALL), with_traps=False)
    held = [key for key in plan.wanted if key.kind is ObjectKind.BINDING and key.to_exchange]
    remembered = bindings_from_json({"bindings": bindings_as_json(held, plan.wanted)})
    assert remembered == {key: plan.wanted[key] for key in held}


@pytest.mark.parametrize("value", [None, [], {}, {"bindings": 1}, {"bindings": [1, {}, {"vhost": "v"}]}])
def test_what_others_wrote_there_is_left_out(value: object) -> None:
    assert bindings_from_json(value) == {}


def test_a_plain_queue_has_no_doubts() -> None:
    assert doubts() == []


def test_a_queue_that_no_chosen_exchange_feeds() -> None:
    source = cluster(exchanges=[exchange()], queues=[queue()], bindings=[binding("x", "q")])
    [doubt] = found(source, standby(selecting(choice(".*"), exchanges="^other"))).doubts
    assert doubt.queue == Q
    assert "can't be copied" in doubt.doubt


def test_a_queue_that_is_fed_through_another_exchange() -> None:
    inner = {**exchange("inner"), "internal": True}
    bindings = [binding("x", "inner", to_exchange=True), binding("inner", "q")]
    assert found(cluster(exchanges=[exchange(), inner], bindings=bindings, queues=[queue()])).doubts == ()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"x_message_ttl": 1, "x_dead_letter_exchange": "d"}, "come twice"),
        ({"x_expires": 1}, "it is deleted with its messages"),
        ({"x_max_length": 1}, "drops its oldest"),
        ({"x_max_length": 1, "x_overflow": "reject-publish"}, "its link waits"),
        ({"x_queue_type": "stream"}, "offsets"),
    ],
)
def test_doubts_of_arguments(arguments: dict[str, Any], says: str) -> None:
    [doubt] = doubts(arguments)
    assert says in doubt


def test_doubts_of_policies() -> None:
    [doubt] = doubts(policies=(policy(message_ttl=1, dead_letter_exchange="d"),))
    assert "come twice" in doubt


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (queue(x_queue_type="stream"), "it is a stream"),
        ({**queue(), "auto_delete": True}, "it is deleted automatically with its last consumer"),
        (queue(x_max_priority=5), "it has max-priority"),
        (queue(x_max_length=5), "it has max-length"),
        (queue(x_delayed_retry_type="all", x_delayed_retry_min=5), "it has delayed-retry-min, delayed-retry-type"),
        (queue(x_message_ttl=5, x_dead_letter_exchange="d"), "it has message-ttl with a dead-letter exchange"),
        (queue(x_message_ttl=5), None),
    ],
)
def test_queues_of_which_not_exactly_the_copies_can_be_taken_out(listed: dict[str, Any], why: str | None) -> None:
    source = cluster(queues=[listed])
    wanted = plan_migration(source, empty(), choose(source, ALL), with_traps=False).wanted
    assert inexact(wanted, limits_of(source, wanted)).get(Q) == why


@pytest.mark.parametrize(
    ("there", "here", "why"),
    [
        ({}, {}, None),
        ({"x_max_length": 9}, {}, None),
        ({"x_max_length": 9}, {"max_length": 9}, None),
        ({"x_max_length": 9}, {"max_length": 8}, "the standby's own policies have a lower max-length"),
        ({}, {"max_length_bytes": 8}, "the standby's own policies have a lower max-length-bytes"),
        ({"x_max_length": 9, "x_overflow": "reject-publish"}, {}, "it has max-length and refuses what is too much"),
        ({"x_overflow": "reject-publish"}, {}, None),
        ({"x_queue_type": "stream"}, {}, "it is a stream"),
    ],
)
def test_queues_whose_messages_are_left_at_the_source(
    there: dict[str, Any], here: dict[str, Any], why: str | None
) -> None:
    source, target = cluster(queues=[queue(**there)]), cluster(queues=[queue(**there)], policies=[policy(**here)])
    wanted = plan_migration(source, empty(), choose(source, ALL), with_traps=False).wanted
    limits = limits_of(source, wanted)
    found = unmovable(wanted, limits, limits_here(limits, limits_of(target, wanted)))
    assert (why is None) == (not found)
    assert not found or found[Q].startswith(why or "")


@pytest.mark.parametrize(
    ("arguments", "fed"),
    [
        ({"x_message_ttl": 9, "x_dead_letter_exchange": "x"}, {"q"}),
        ({"x_dead_letter_exchange": "x"}, {"q"}),
        ({"x_dead_letter_exchange": "far"}, {"q"}),
        ({"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "other"}, {"other"}),
        ({"x_dead_letter_exchange": ""}, {"q", "other", "retry"}),
        ({"x_dead_letter_exchange": "elsewhere"}, set()),
        ({"x_message_ttl": 9}, set()),
    ],
)
def test_queues_that_others_dead_letter_into_are_inexact(arguments: dict[str, Any], fed: set[str]) -> None:
    source = cluster(
        exchanges=[exchange(), exchange("far")],
        queues=[queue(), queue("other"), queue("retry", **arguments)],
        bindings=[binding("far", "x", to_exchange=True), binding("x", "q")],
    )
    wanted = plan_migration(source, empty(), choose(source, ALL), with_traps=False).wanted
    left = inexact(wanted, limits_of(source, wanted))
    assert {key.name for key, why in left.items() if "dead-letter into it" in why} == fed


def test_a_policy_that_dead_letters_makes_its_targets_inexact() -> None:
    source = cluster(
        exchanges=[exchange()],
        queues=[queue()],
        bindings=[binding("x", "q")],
        policies=[policy(dead_letter_exchange="x")],
    )
    wanted = plan_migration(source, empty(), choose(source, ALL), with_traps=False).wanted
    assert "dead-letter into it" in inexact(wanted, limits_of(source, wanted))[Q]


def test_what_federates_at_the_source_is_not_copied() -> None:
    both = policy("both", federation_upstream_set="all", max_length=1)
    source = without_federation(cluster(policies=[both, policy("only", federation_upstream="u"), policy(expires=1)]))
    wanted = plan_migration(source, empty(), choose(source, ALL), with_traps=False).wanted
    assert {key.name: body["definition"] for key, body in wanted.items() if key.kind is ObjectKind.POLICY} == {
        "both": {"max-length": 1},
        "p": {"expires": 1},
    }


def test_a_queue_that_one_message_reaches_through_two_links() -> None:
    source = cluster(
        exchanges=[exchange("a"), exchange("b"), exchange("c")],
        queues=[queue("both"), queue("one"), queue("branches")],
        bindings=[
            binding("a", "b", to_exchange=True),
            binding("a", "c", to_exchange=True),
            binding("a", "both"),
            binding("b", "both"),
            binding("b", "branches"),
            binding("c", "branches"),
            binding("c", "one"),
        ],
    )
    assert {each.queue.name for each in found(source).doubts if each.doubt == TWICE} == {"both", "branches"}


def test_a_queue_that_lacks_what_comes_by_an_exchange_without_a_link() -> None:
    source = cluster(
        exchanges=[exchange("x"), exchange("other"), exchange("hash", "x-consistent-hash")],
        queues=[queue(), queue("p")],
        bindings=[binding("x", "q"), binding("other", "q"), binding("x", "p"), binding("hash", "p")],
    )
    settings = standby(selecting(choice(".*"), exchanges="^(x|hash)$"))
    missing = {each.queue.name: each.doubt.partition(": ")[2] for each in found(source, settings).doubts}
    assert missing == {
        "q": "that one has no link",
        "p": "that one is of type x-consistent-hash, which no link shares",
    }


def test_what_the_standby_itself_adds() -> None:
    lists: dict[str, Any] = {
        "exchanges": [exchange()],
        "bindings": [binding("x", "q")],
        "queues": [queue(), queue("p")],
    }
    source = cluster(**lists)
    target = cluster(NEW, **lists, policies=[policy(max_length=9)])
    operator = cluster(policies=[policy("o", "^q", max_length=5, message_ttl=1)]).objects
    wanted = plan_migration(source, empty(), choose(source, ALL), with_traps=False).wanted
    there = limits_of(source, wanted)
    here = limits_here(there, limits_of(target, wanted, operator=operator))
    q, p = (here[queue_key("v", name)] or {} for name in ("q", "p"))
    assert (q["max-length"], q["message-ttl"], p["max-length"], "message-ttl" in p) == (5, 1, 9, False)
    [doubt] = [each.doubt for each in copies_of(standby(), source, wanted, there, here).doubts if each.queue == Q]
    assert "the standby's own policies have message-ttl, max-length" in doubt
    assert inexact(wanted, here)[Q] == "it has max-length"
    assert trim_terms(standby(), source, NEW, wanted, there, copies=here).never[Q] == StandingDoubt.LIMITED


def test_what_is_gone_at_the_source() -> None:
    here = cluster(exchanges=[exchange()], queues=[queue(), queue("federation-agent: q")])
    assert gone(standby(), here, here) == StandbyGone([], ())
    assert gone(standby(), cluster(exchanges=[exchange()]), here) == StandbyGone([Q], ())
    assert gone(standby(), cluster(), here).vhosts == ("v",)
    assert gone(standby(), cluster(), cluster()).vhosts == ()


def test_what_is_held_back_stays_so_when_the_source_has_lost_it() -> None:
    ends = [exchange("x"), exchange("y")]
    source = cluster(exchanges=ends, bindings=[binding("x", "y", to_exchange=True)])
    [key] = found(source).held_back
    wanted, here = {key: source.objects[key]}, cluster(exchanges=ends).objects
    assert still_held_back({}, [key], wanted, here) == wanted
    assert still_held_back(wanted, (), {}, here) == wanted
    assert still_held_back(wanted, (), {}, cluster(exchanges=ends[:1]).objects) == {}
    assert still_held_back(wanted, (), {}, source.objects) == {}
