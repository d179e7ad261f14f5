"""What is judged without any broker: policies of queues, loops, certificates, clocks, and who could get a trial."""

from __future__ import annotations

from time import process_time

import pytest

from agent.check.core_delivery import is_caught
from agent.check.findings import Finding, Level, Topic, has_problems, in_order
from agent.check.loops import Spot, Way, judge_loops
from agent.check.policies import Listed, effective
from agent.check.releases import DAY, Certified, Opened, judge_clock, judge_opened, judge_pair


def exchange(cluster: str, name: str = "x") -> Spot:
    return Spot(cluster, "/", "exchange", name)


def queue(cluster: str) -> Spot:
    return Spot(cluster, "/", "queue", "q")


def test_the_lowest_limit_of_all_sources_holds() -> None:
    listed = Listed("q", "quorum", {"x-delivery-limit": 50})
    policies = [
        {"name": "low", "pattern": ".*", "priority": 0, "definition": {"delivery-limit": 5}},
        {"name": "high", "pattern": "^q", "priority": 1, "definition": {"delivery-limit": 100}},
        {"name": "classic", "pattern": "^q", "apply-to": "classic_queues", "priority": 2, "definition": {"a": 1}},
    ]
    operators = [{"name": "operator", "pattern": "q$", "definition": {"delivery-limit": -1, "max-length": 9}}]
    found = effective(listed, policies, operators)
    assert (found.number("delivery-limit"), found.sources["delivery-limit"]) == (50, "its arguments")
    assert (found.number("max-length"), found.sources["max-length"]) == (9, "operator policy 'operator'")


def test_a_limit_wins_over_none() -> None:
    policies = [{"name": "p", "pattern": ".*", "definition": {"delivery-limit": 7}}]
    assert effective(Listed("q", "quorum", {"x-delivery-limit": -1}), policies, ()).number("delivery-limit") == 7


def test_a_policy_with_a_key_that_queues_of_a_type_do_not_know_holds_for_none_of_them() -> None:
    policies = [
        {"name": "mirrored", "pattern": ".*", "priority": 1, "definition": {"ha-mode": "all", "max-length": 1}},
        {"name": "limited", "pattern": ".*", "priority": 0, "definition": {"delivery-limit": 9, "max-length": 2}},
    ]
    for type_, length in (("classic", 1), ("quorum", 2)):
        assert effective(Listed("q", type_), policies, ()).number("max-length") == length
    assert effective(Listed("q"), policies[1:], ()).values == {}


def test_of_policies_with_one_priority_the_broker_says_which_holds() -> None:
    policies = [{"name": name, "pattern": ".*", "definition": {"max-length": 1}} for name in "abc"]
    found = effective(Listed("q", policy="b"), policies, ())
    assert found.sources == {"max-length": "policy 'b'"}


def test_a_pair_in_both_directions_is_no_loop() -> None:
    ways = [Way("a", exchange("one"), exchange("two"), 1), Way("b", exchange("two"), exchange("one"), 1)]
    assert list(judge_loops(ways)) == []


def test_messages_that_arrive_twice() -> None:
    ways = [Way(f"{one}{other}", exchange(one), exchange(other), 2) for one in "abc" for other in "abc" if one != other]
    found = list(judge_loops(ways))
    assert {each.level for each in found} == {Level.WARNING}
    assert "messages published at exchange 'x' in vhost '/' of a arrive 2 times" in {each.message for each in found}


def test_shovels_in_a_circle_are_one_error() -> None:
    ways = [Way("a", queue("1"), queue("2")), Way("b", queue("2"), queue("3")), Way("c", queue("3"), queue("1"))]
    [found] = judge_loops([*ways, Way("out", queue("2"), queue("4"))])
    assert (found.level, found.links) == (Level.ERROR, ("a", "b", "c"))


def test_a_link_from_itself() -> None:
    [found] = judge_loops([Way("a", exchange("one"), exchange("one"), 1)])
    assert found.level is Level.ERROR


def opened(**more: object) -> Opened:
    settings = {"frame_max": 131072, "channel_max": 2047, "version": "3.13.0", "cluster": "c"} | more
    return Opened(where="upstream a", vhost="/", user="u", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("days", "level"), [(-1, Level.ERROR), (29, Level.WARNING), (31, None)])
def test_certificates(days: float, level: Level | None) -> None:
    certified = opened(is_encrypted=True, is_verified=True, certificates=(Certified("it", days * DAY),))
    assert [each.level for each in judge_opened(certified, 0.0)] == ([] if level is None else [level])


def test_few_channels() -> None:
    [found] = judge_opened(opened(channel_max=4), 0.0)
    assert found.topic is Topic.LIMITS


def test_a_destination_that_takes_less() -> None:
    found = list(judge_pair(opened(), opened(frame_max=8192, limits_deliveries=True)))
    assert [each.level for each in found] == [Level.NOTE, Level.NOTE]
    assert list(judge_pair(opened(), opened())) == []


@pytest.mark.parametrize(("difference", "found"), [(0.0, 0), (4.9, 0), (-4.9, 0), (6.0, 1), (-6.0, 1)])
def test_clocks(difference: float, found: int) -> None:
    assert len(list(judge_clock("here", difference))) == found


@pytest.mark.parametrize(
    ("binding", "type_", "caught"),
    [
        ("#", "topic", True), ("*", "topic", True), ("#.#", "topic", True), ("#.*", "topic", True),
        ("key", "topic", True), ("a", "topic", False), ("*.*", "topic", False), ("#.a", "topic", False),
        ("", "topic", False), ("#", "direct", False), ("key", "direct", True),
    ],
)  # fmt: skip
def test_who_could_get_a_trial(binding: str, type_: str, caught: bool) -> None:
    assert is_caught(binding, "key", type_=type_) is caught


def test_findings_are_shown_once_and_the_worst_first() -> None:
    note, error = Finding(Level.NOTE, Topic.TLS, "a", "m"), Finding(Level.ERROR, Topic.LOOP, "b", "m")
    assert in_order([note, error, note]) == [error, note]
    assert has_problems([note, error])
    assert not has_problems([note])


def mesh(clusters: int, max_hops: int) -> list[Way]:
    names = [str(each) for each in range(clusters)]
    return [Way(f"{a}-{b}", exchange(a), exchange(b), max_hops) for a in names for b in names if a != b]


@pytest.mark.parametrize(("clusters", "max_hops"), [(8, 7), (12, 10)])
def test_a_mesh_is_examined_within_seconds_and_the_worst_is_reported(clusters: int, max_hops: int) -> None:
    began = process_time()
    found = list(judge_loops(mesh(clusters, max_hops)))
    assert process_time() - began < 5
    assert {each.level for each in found} == {Level.WARNING}


def test_what_was_not_examined_in_time_is_reported() -> None:
    [found] = judge_loops(mesh(3, 2), lambda: False)
    assert found.level is Level.NOTE
    assert "not all were examined" in found.message
