"""Objectives from YAML: no Spark runs."""

import pytest

from agent.errors import ConfigurationError
from agent.pipeline.objectives import Objective, ObjectiveKind, parse_objectives


def test_objectives() -> None:
    found = parse_objectives("objectives: {a: {target: 99.9}, b: {target: 90, days: 7, within: 0.5}}", source="f")
    assert found == (Objective("a", 99.9), Objective("b", 90.0, 7, 0.5))
    assert [one.kind for one in found] == [ObjectiveKind.TIME, ObjectiveKind.MESSAGES]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("objectives: [", 1),
        ("[]", 1),
        ("objectives: {}", 1),
        ("objectives: {a: {target: 100}}", 1),
        ("objectives: {a: {target: 99, days: 0, within: -1, goal: 1}, b: 3}", 4),
        ("objectives: {a: {target: 99, within: .nan}, b: {target: 99, within: .inf}}", 2),
        ("objectives: {a: {target: 99, target: 90}, a: {target: 80}}", 2),
    ],
)
def test_wrong_objectives_are_told_at_once(text: str, problems: int) -> None:
    with pytest.raises(ConfigurationError) as told:
        parse_objectives(text, source="objectives.yaml")
    assert len(told.value.problems) == problems
    assert all(str(problem).startswith("objectives.yaml") for problem in told.value.problems)
