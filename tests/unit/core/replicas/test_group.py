"""What a replica knows of the others."""

from __future__ import annotations

from agent.core.replicas.messages import Report
from agent.core.replicas.sharing import MOST_MEMBERS, SILENCE, AgentGroup


def report(replica: str, *slots: int, links: frozenset[str] | None = frozenset()) -> Report:
    return Report(replica, f"name of {replica}", frozenset(slots), links)


def test_a_slot_belongs_to_who_reported_it_last() -> None:
    group = AgentGroup()
    assert group.hear(report("a", 1, 2), 0.0)
    assert not group.hear(report("a", 1, 2), 1.0)
    assert group.hear(report("b", 2), 2.0)
    assert [member.name for slot in (1, 2) if (member := group.holder(slot))] == ["name of a", "name of b"]
    assert group.holder(3) is None


def test_who_lost_a_slot_is_not_counted_until_it_reports_again() -> None:
    group = AgentGroup()
    group.hear(report("a", 1, 2), 0.0)
    group.take({1})
    assert not group.able
    assert group.hear(report("a", 2), 1.0)
    assert group.able.keys() == {"a"}


def test_who_is_silent_is_forgotten() -> None:
    group = AgentGroup()
    group.hear(report("a"), 0.0)
    assert not group.expire(SILENCE)
    assert group.expire(SILENCE + 1)
    assert not group.members


def test_links_are_remembered_until_they_are_reported_anew() -> None:
    group = AgentGroup()
    group.hear(report("a", links=frozenset({"00000001"})), 0.0)
    group.hear(report("a", 1, links=None), 1.0)
    assert group.weights(["00000002"]) == {1: 1, 2: 1}


def test_strangers_without_end_are_not_remembered() -> None:
    group = AgentGroup()
    for number in range(MOST_MEMBERS + 5):
        group.hear(report(str(number)), 0.0)
    assert len(group.members) == MOST_MEMBERS


def test_one_that_leaves_is_gone() -> None:
    group = AgentGroup()
    group.hear(report("a", 1), 0.0)
    assert group.leave("a")
    assert not group.leave("a")
    assert group.holder(1) is None
