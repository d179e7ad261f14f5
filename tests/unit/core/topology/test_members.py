"""Several agents' definitions as one graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.core.addresses.uri import parse
from agent.core.model import (
    AddressDestination,
    AddressSource,
    ApplyTo,
    Choice,
    Definitions,
    ExchangeDestination,
    Federation,
    LinkSettings,
    Policy,
    QueueDestination,
    QueueSource,
    Shovel,
    Upstream,
    VhostDefinitions,
)
from agent.core.topology.graph import Carrier, Hop, Node
from agent.core.topology.graph import CarrierEnd as End
from agent.core.topology.members import (
    Address,
    Directory,
    Member,
    carriers_of,
    example,
    graph_of,
    name_clusters,
    names_of,
)
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
        {"u": Upstream("u", (parse(upstream),), HERE, LinkSettings(max_hops=2))},
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
        Carrier(
            "queue",
            "jobsexample",
            End("b", "/", "queue", "jobsexample"),
            End("a", "/", "queue", "jobsexample"),
        ),
        Carrier("shovel", "drain", End("b", "/", "queue", "in"), End("a", "/", "queue", "out")),
        Carrier("shovel", "spread", End("a", "/", "queue", "in"), End("b", "v", "exchange", "orders")),
    )
    assert pairs(a, b) == [("a", "b")]


def test_an_address_is_the_queue_or_exchange_that_it_names() -> None:
    uris = (parse("amqp://a.example"),)
    shovels = {
        "in": Shovel("in", uris, uris, HERE, AddressSource("/queues/jobs%2Fin"), AddressDestination("/exchanges/x/k")),
        "out": Shovel("out", uris, uris, HERE, QueueSource("jobs/in"), AddressDestination("topic://orders")),
    }
    found = {
        each.name: (each.source, each.destination) for each in carriers_of([member("a", "amqp://o", shovels=shovels)])
    }
    queue = End("a", "/", "queue", "jobs/in")
    assert found == {
        "in": (queue, End("a", "/", "exchange", "x")),
        "out": (queue, End("a", "/", "address", "topic://orders")),
    }


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


LOOPBACK = "amqp://127.0.0.1:5672"


def called(*files: tuple[str, str, str, str]) -> list[str]:
    """Of each file: its path, group, downstream and upstream."""
    members = [replace(member(group, up, at=at), source=source) for source, group, at, up in files]
    return [each.cluster for each in name_clusters(members)]


def test_a_group_is_the_name_of_all_its_files() -> None:
    assert called(("a.yaml", "dc1", LOOPBACK, "amqp://b"), ("b.yaml", "dc1", "amqp://other", "amqp://c")) == [
        "dc1",
        "dc1",
    ]


def test_an_address_that_no_other_file_has_is_the_name() -> None:
    files = ("a.yaml", "", "amqp://A.example", "amqp://b"), ("b.yaml", "", "amqp://127.0.0.1:5673", "amqp://c")
    assert called(*files, ("c.yaml", "", LOOPBACK, "amqp://c")) == [
        "a.example:5672",
        "127.0.0.1:5673",
        "127.0.0.1:5672",
    ]


def test_loopback_addresses_of_several_files_are_several_clusters() -> None:
    files = ("x/dc1.yaml", "", LOOPBACK, "amqp://b"), ("x/dc2.yaml", "", "amqp://localhost", "amqp://b")
    assert called(*files) == ["dc1", "dc2"]


def test_files_of_the_same_name_are_called_by_their_whole_path() -> None:
    assert called(("1/a.yaml", "", LOOPBACK, "amqp://b"), ("2/a.yaml", "", LOOPBACK, "amqp://b")) == [
        "1/a.yaml",
        "2/a.yaml",
    ]


def test_a_file_called_as_a_group_is_another_cluster() -> None:
    files = (
        ("dc1.yaml", "", LOOPBACK, "amqp://b"),
        ("b.yaml", "", LOOPBACK, "amqp://b"),
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
    assert called(("1.yaml", "g", LOOPBACK, "amqp://b"), ("2.yaml", "", LOOPBACK, "amqp://c")) == ["g", "2"]


def test_what_people_may_call_it() -> None:
    [found] = name_clusters([replace(member("", "amqp://b", at=LOOPBACK), source="/etc/dc1.yaml")])
    assert set(names_of(found)) == {"127.0.0.1:5672", "/etc/dc1.yaml", "dc1.yaml", "dc1"}
