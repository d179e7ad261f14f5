"""Alarms of a broker's nodes, as `check` judges them."""

from __future__ import annotations

from agent.check.core_alarms import NodeAlarms, judge_alarms, unseen_alarms
from agent.check.findings import Level

FINE = NodeAlarms("rabbit@a", memory=False, disk=False)


def test_each_resource_is_a_finding_that_names_the_nodes() -> None:
    nodes = [FINE, NodeAlarms("rabbit@b", memory=True, disk=True), NodeAlarms("rabbit@c", memory=True, disk=False)]
    memory, disk = judge_alarms("downstream http://h", nodes, links_to=["//x", "//x"], links_from=[])
    assert memory.message.startswith("memory alarm on rabbit@b, rabbit@c: ")
    assert disk.message.startswith("disk alarm on rabbit@b: ")
    assert "disk_free_limit" in disk.fix
    assert (memory.level, memory.links) == (Level.ERROR, ("//x",))


def test_no_alarm_is_no_finding_and_no_statistics_a_note() -> None:
    assert list(judge_alarms("h", [FINE], links_to=["//x"], links_from=[])) == []
    [unseen] = judge_alarms("h", [NodeAlarms("rabbit@a", memory=None, disk=None)], links_to=["//x"], links_from=[])
    assert (unseen.level, "can't be seen" in unseen.message) == (Level.NOTE, True)


def test_brokers_without_an_api_are_named_up_to_a_number() -> None:
    assert list(unseen_alarms([])) == []
    [found] = unseen_alarms([f"upstream u{number}" for number in range(8)])
    assert "upstream u4 and 3 more has" in found.message
