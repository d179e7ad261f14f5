"""The order of findings."""

from __future__ import annotations

from agent.check.findings import Finding, FindingLevel, Topic, has_problems, in_order


def test_findings_are_shown_once_and_the_worst_first() -> None:
    note, error = Finding(FindingLevel.NOTE, Topic.TLS, "a", "m"), Finding(FindingLevel.ERROR, Topic.LOOP, "b", "m")
    assert in_order([note, error, note]) == [error, note]
    assert has_problems([note, error])
    assert not has_problems([note])
