"""Alarms of a broker's nodes, as `check` judges them."""

from __future__ import annotations

from agent.check.alarms import judge_nodes, judge_unseen
from agent.check.findings import FindingLevel
from agent.check.http_api import NodeAlarms

FINE = NodeAlarms("rabbit@a", memory=False, disk=False)


def test_each_resource_is_a_finding_that_names_the_nodes() -> None:
    nodes = [FINE, NodeAlarms("rabbit@b", memory=True, disk=True), NodeAlarms("rabbit@c", memory=True, disk=False)]
    memory, disk = judge_nodes("downstream http://h", nodes, links_to=["//x", "//x"], links_from=[])
    assert memory.message.startswith("memory alarm on rabbit@b, rabbit@c: ")
    assert disk.message.startswith("disk alarm on rabbit@b: ")
    assert "disk_free_limit" in disk.fix
    assert (memory.level, memory.links) == (FindingLevel.ERROR, ("//x",))


def test_no_alarm_is_no_finding_and_no_statistics_a_note() -> None:
    assert list(judge_nodes("h", [FINE], links_to=["//x"], links_from=[])) == []
    [unseen] = judge_nodes("h", [NodeAlarms("rabbit@a", memory=None, disk=None)], links_to=["//x"], links_from=[])
    assert (unseen.level, "can't be seen" in unseen.message) == (FindingLevel.NOTE, True)


def test_brokers_without_an_api_are_named_up_to_a_number() -> None:
    assert list(judge_unseen([])) == []
    [found] = judge_unseen([f"upstream u{number}" for number in range(8)])
    assert "upstream u4 and 3 more has" in found.message
