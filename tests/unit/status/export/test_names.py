from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given

from agent.status.export.names import WRITTEN, FileNames, day_of, safe
from tests.unit.core.strategies import names
from tests.unit.status.export.writing import STARTED


def test_a_name_tells_agent_start_and_number() -> None:
    assert FileNames.of("dc2-a", STARTED).written(7) == "dc2-a-20270115T080000.250000Z-000007.jsonl.part"


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("dc2-a.example_1", "dc2-a.example_1"),
        ("a/b", "a%2Fb"),
        ("..", "%2E."),
        ("_hidden", "%5Fhidden"),
        ("ü *:\n", "%C3%BC%20%2A%3A%0A"),
        ("%2F", "%252F"),
    ],
)
def test_an_agent_of_any_name_has_safe_files(agent: str, expected: str) -> None:
    assert safe(agent) == expected


@given(names, names)
def test_no_two_agents_share_files(one: str, other: str) -> None:
    ours, theirs = FileNames.of(one, STARTED), FileNames.of(other, STARTED)
    assert ours.owns(ours.written(1))
    assert ours.owns(ours.written(1).removesuffix(".part"))
    assert ours.owns(theirs.written(1)) == (one == other)


@pytest.mark.parametrize("other", ["dc2", "dc2-a-b", "dc2-a-20270115T080000.250000Z-000001"])
def test_an_agent_whose_name_begins_alike_is_another(other: str) -> None:
    assert not FileNames.of("dc2-a", STARTED).owns(FileNames.of(other, STARTED).written(1))
    assert not FileNames.of(other, STARTED).owns(FileNames.of("dc2-a", STARTED).written(1))


@pytest.mark.parametrize("long", ["x" * 255, "ü" * 127])
def test_a_long_name_fits_and_stays_another(long: str) -> None:
    assert len(FileNames.of(long, STARTED).written(1)) <= 255
    assert safe(long) != safe(long[:-1])


def test_nothing_else_is_a_file_of_the_agent() -> None:
    ours = FileNames.of("a", STARTED)
    for name in ("a", "a.jsonl", "a-1-2.jsonl", ours.written(1) + "~", "notes.txt"):
        assert not ours.owns(name)
    assert ours.written(1).endswith(WRITTEN)


@pytest.mark.parametrize(
    ("name", "expected"), [("date=2027-01-15", date(2027, 1, 15)), ("date=2027-02-30", None), ("2027-01-15", None)]
)
def test_the_day_of_a_directory(name: str, expected: date | None) -> None:
    assert day_of(name) == expected
