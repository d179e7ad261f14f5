"""Whether upstreams that no file has leave open what the graph is."""

from __future__ import annotations

from dataclasses import replace

from agent.core.topology.members import UnknownUpstream, unknown_upstreams
from tests.unit.core.topology.test_members import member

HERE = "amqp://127.0.0.1:5672"


def open_ones(*members: object) -> dict[str, tuple[str, ...]]:
    return {each.address: each.may_be for each in unknown_upstreams(members)}  # type: ignore[arg-type]


def test_one_file_leaves_nothing_open() -> None:
    assert unknown_upstreams([member("a", "amqp://o", at=HERE)]) == (UnknownUpstream("o:5672", ("a",), ()),)


def test_an_upstream_may_be_a_cluster_that_nobody_recognises() -> None:
    a, b = member("a", "amqp://b.example", at=HERE), member("b", "amqp://a.example", at=HERE)
    assert open_ones(a, b) == {"a.example:5672": ("a",), "b.example:5672": ("b",)}
    a_told = replace(a, known_as=(("a.example", 5672),))
    assert open_ones(a_told, b) == {"b.example:5672": ("b",)}
    assert open_ones(a_told, replace(b, known_as=(("b.example", 5672),))) == {}


def test_it_may_be_one_that_has_a_link_from_there_too() -> None:
    """Where all have the same list, each may be in it."""
    a, b = member("a", "amqp://o", at=HERE), member("b", "amqp://o", at=HERE)
    assert open_ones(a, b) == {"o:5672": ("a", "b")}


def test_an_upstream_without_an_agent_is_open_to_nobody_whose_names_others_use() -> None:
    assert open_ones(member("a", "amqp://o"), member("b", "amqp://o")) == {"o:5672": ()}
    assert open_ones(member("a", "amqp://o"), member("b", "amqp://a.example")) == {"o:5672": ()}


def test_names_that_nobody_uses_are_not_those_that_others_know() -> None:
    a, b = member("a", "amqp://public.b"), member("b", "amqp://public.a")
    assert open_ones(a, b) == {"public.a:5672": ("a",), "public.b:5672": ("b",)}


def test_an_address_of_two_clusters_is_nobodys() -> None:
    a, b = member("a", "amqp://b.example", at="amqp://r"), member("b", "amqp://a.example", at="amqp://r")
    assert open_ones(a, b) == {"a.example:5672": ("a",), "b.example:5672": ("b",)}


def test_files_that_are_taken_for_replicas_may_be_each_others_upstream() -> None:
    both = [replace(member("r:5672", "amqp://o", at="amqp://r"), is_guessed=True) for _ in range(2)]
    assert open_ones(*both) == {"o:5672": ("r:5672",)}
    assert open_ones(*both, member("c", "amqp://r")) == {"o:5672": ()}


def test_a_loopback_address_leads_to_no_other_host() -> None:
    assert open_ones(member("a", HERE), member("b", "amqp://a.example", at=HERE)) == {"127.0.0.1:5672": ("b",)}
