"""Several agents' definitions as one graph."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.core.addresses.uri import parse
from agent.core.model import (
    ApplyTo,
    Choice,
    Definitions,
    ExchangeDestination,
    Federation,
    LinkOverrides,
    Policy,
    QueueDestination,
    QueueSource,
    Shovel,
    Upstream,
    VhostDefinitions,
)
from agent.core.topology.directory import Directory
from agent.core.topology.graph import Carrier, End, Hop, Node
from agent.core.topology.linking import carriers_of, graph_of
from agent.core.topology.members import Address, Member, example
from agent.errors import Place

HERE = Place("test")


def member(
    cluster: str,
    upstream: str,
    *,
    at: str = "",
    pattern: str = "^orders$",
    apply_to: ApplyTo = ApplyTo.EXCHANGES,
    shovels: Mapping[str, Shovel] | None = None,
    known_as: tuple[Address, ...] = (),
) -> Member:
    policy = Policy("p", pattern, apply_to, 0, Federation(Choice.UPSTREAM, "u"), HERE)
    found = VhostDefinitions(
        {"u": Upstream("u", (parse(upstream),), HERE, LinkOverrides(max_hops=2))},
        policies={"p": policy},
        shovels=shovels or {},
    )
    return Member(cluster, (parse(at or f"amqp://{cluster}.example"),), Definitions({"/": found}), {}, known_as)


def pairs(*members: Member) -> list[tuple[str, str]]:
    return [(hop.upstream.cluster, hop.downstream.cluster) for hop in graph_of(members).hops]


def test_an_upstream_is_the_downstream_of_another_member() -> None:
    a, b = member("a", "amqp://b.example"), member("b", "amqp://A.example:5672")
    assert graph_of([a, b]).hops == (
        Hop(Node("a", "/", "orders"), Node("b", "/", "orders"), 2),
        Hop(Node("b", "/", "orders"), Node("a", "/", "orders"), 2),
    )


def test_it_is_recognised_by_another_port_for_tls() -> None:
    assert pairs(member("a", "amqps://b.example"), member("b", "amqp://a.example")) == [("a", "b"), ("b", "a")]


def test_one_that_no_member_stands_beside_is_called_by_its_address() -> None:
    assert pairs(member("a", "amqp://elsewhere.example:5673")) == [("elsewhere.example:5673", "a")]


def test_an_upstream_without_a_host_is_the_downstream_itself() -> None:
    assert pairs(member("a", "amqp:///other")) == [("a", "a")]


def test_loopback_addresses_are_recognised_while_each_is_of_one_member() -> None:
    a = member("a", "amqp://127.0.0.1:5673", at="amqp://127.0.0.1:5672")
    b = member("b", "amqp://127.0.0.1:5672", at="amqp://127.0.0.1:5673")
    assert pairs(a, b) == [("a", "b"), ("b", "a")]


def test_a_loopback_address_of_several_members_is_nobodys() -> None:
    a = member("a", "amqp://b.example", at="amqp://localhost")
    b = member("b", "amqp://a.example", at="amqp://localhost")
    assert pairs(a, b) == [("a.example:5672", "b"), ("b.example:5672", "a")]
    assert Directory([a, b]).is_hidden(a)
    known = member("a", "amqp://b.example", at="amqp://localhost", known_as=(("a.example", 5672),))
    assert pairs(known, b) == [("a", "b"), ("b.example:5672", "a")]
    assert not Directory([known, b]).is_hidden(known)


def test_queue_links_and_shovels_are_shown_as_what_they_are() -> None:
    drain = Shovel(
        "drain",
        (parse("amqp://b.example"),),
        (parse("amqp://"),),
        HERE,
        QueueSource("in"),
        QueueDestination("out"),
    )
    spread = Shovel(
        "spread",
        (parse("amqp://"),),
        (parse("amqp://b.example/v"),),
        HERE,
        QueueSource("in"),
        ExchangeDestination("orders"),
    )
    a = member(
        "a",
        "amqp://b.example",
        pattern="^jobs",
        apply_to=ApplyTo.QUEUES,
        shovels={"drain": drain, "spread": spread},
    )
    b = member("b", "amqp://a.example")
    assert carriers_of([a, b]) == (
        Carrier("queue", "jobsexample", End("b", "/", "queue", "jobsexample"), End("a", "/", "queue", "jobsexample")),
        Carrier("shovel", "drain", End("b", "/", "queue", "in"), End("a", "/", "queue", "out")),
        Carrier("shovel", "spread", End("a", "/", "queue", "in"), End("b", "v", "exchange", "orders")),
    )
    assert pairs(a, b) == [("a", "b")]


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"^federated\.", "federated.example"),
        ("^orders$", "orders"),
        (".*", "example"),
        ("^$", None),
    ],
)
def test_a_name_that_a_pattern_matches(pattern: str, name: str | None) -> None:
    assert example(pattern) == name
