"""Which files belong to one cluster, and what it is called."""

from __future__ import annotations

from dataclasses import replace

from agent.core.topology.naming import name, names_of
from tests.unit.core.topology.test_members import member

HERE = "amqp://127.0.0.1:5672"


def called(*files: tuple[str, str, str, str]) -> list[str]:
    """Of each file: its path, group, downstream and upstream."""
    members = [replace(member(group, up, at=at), source=source) for source, group, at, up in files]
    return [each.cluster for each in name(members)]


def test_a_group_is_the_name_of_all_its_files() -> None:
    assert called(("a.yaml", "dc1", HERE, "amqp://b"), ("b.yaml", "dc1", "amqp://other", "amqp://c")) == ["dc1", "dc1"]


def test_an_address_that_no_other_file_has_is_the_name() -> None:
    files = ("a.yaml", "", "amqp://A.example", "amqp://b"), ("b.yaml", "", "amqp://127.0.0.1:5673", "amqp://c")
    assert called(*files, ("c.yaml", "", HERE, "amqp://c")) == ["a.example:5672", "127.0.0.1:5673", "127.0.0.1:5672"]


def test_loopback_addresses_of_several_files_are_several_clusters() -> None:
    files = ("x/dc1.yaml", "", HERE, "amqp://b"), ("x/dc2.yaml", "", "amqp://localhost", "amqp://b")
    assert called(*files) == ["dc1", "dc2"]


def test_files_of_the_same_name_are_called_by_their_whole_path() -> None:
    assert called(("1/a.yaml", "", HERE, "amqp://b"), ("2/a.yaml", "", HERE, "amqp://b")) == ["1/a.yaml", "2/a.yaml"]


def test_a_file_called_as_a_group_is_another_cluster() -> None:
    files = (
        ("dc1.yaml", "", HERE, "amqp://b"),
        ("b.yaml", "", HERE, "amqp://b"),
        ("c.yaml", "dc1", "amqp://c", "amqp://b"),
    )
    assert called(*files) == ["dc1.yaml", "b", "dc1"]


def test_the_same_links_to_the_same_address_are_replicas() -> None:
    files = ("1.yaml", "", "amqp://r", "amqp://b"), ("2.yaml", "", "amqp://r", "amqp://b")
    assert called(*files) == ["r:5672", "r:5672"]


def test_other_links_to_the_same_address_may_be_another_cluster() -> None:
    files = ("1.yaml", "", "amqp://r", "amqp://b"), ("2.yaml", "", "amqp://r", "amqp://c")
    assert called(*files) == ["1", "2"]


def test_an_address_of_a_group_does_not_name_another_file() -> None:
    assert called(("1.yaml", "g", HERE, "amqp://b"), ("2.yaml", "", HERE, "amqp://c")) == ["g", "2"]


def test_what_people_may_call_it() -> None:
    [found] = name([replace(member("", "amqp://b", at=HERE), source="/etc/dc1.yaml")])
    assert set(names_of(found)) == {"127.0.0.1:5672", "/etc/dc1.yaml", "dc1.yaml", "dc1"}
