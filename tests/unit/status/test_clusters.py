"""What clusters at addresses are called."""

from __future__ import annotations

from agent.core.addresses.uri import parse
from agent.status.board import Clusters, address_of


def test_an_address_is_known_whatever_its_login_and_vhost() -> None:
    found = Clusters()
    found.learn(parse("amqp://u:p@Host/%2f"), "dc1")
    assert found.name_of([parse("amqp://elsewhere"), parse("amqp://host:5672/v")]) == "dc1"
    assert found.name_of([parse("amqps://host")]) is None
    found.learn(parse("amqp://host"), "dc9")
    assert found.name_of([parse("amqp://host")]) == "dc9"


def test_the_downstream_is_known_by_its_addresses() -> None:
    found = Clusters(downstream=frozenset({address_of(parse("amqp://h:1"))}))
    asked = ["amqp://u:p@h:1/v", "amqp://h:2", "amqp://", "amqp:///v"]
    assert [found.is_downstream(parse(each)) for each in asked] == [True, False, True, True]


def test_it_forgets_the_oldest() -> None:
    found = Clusters(most=2)
    for number in (1, 2, 1, 3):
        found.learn(parse(f"amqp://h:{number}"), f"dc{number}")
    assert [found.name_of([parse(f"amqp://h:{number}")]) for number in (1, 2, 3)] == ["dc1", None, "dc3"]
