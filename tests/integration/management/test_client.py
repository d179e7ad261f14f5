"""Long lists, and the native plugin's links, from the HTTP API of real brokers; `tests/contract` has the rest."""

import time
from collections.abc import Callable

import pytest

from agent.core.addresses.uri import parse as parse_amqp
from agent.core.addresses.uri import parse_http
from agent.management.answers import BindingAnswer
from agent.management.client import ManagementClient
from tests.lab.node import Node
from tests.lab.waiting import eventually_async

Naming = Callable[[str], str]
MANY = 10_000
MOST_CPU = 2.5  # of 40,000 thus 10 s


async def test_links_of_the_native_plugin(native_broker: Node, name: Naming) -> None:
    with native_broker.admin.temporary_vhost(name("vhost")) as vhost:
        native_broker.admin.parameter("federation-upstream", vhost, "o", {"uri": native_broker.uri(vhost)})
        native_broker.admin.policy(vhost, "p", "^x$", definition={"federation-upstream": "o"}, apply_to="exchanges")
        native_broker.admin.exchange(vhost, "x")
        async with ManagementClient([parse_http(native_broker.management_uri())]) as client:

            async def links() -> list[tuple[str, str | None, str]]:
                found = await client.federation_links() or []
                return [
                    (link["type"], link.get("exchange"), link["upstream"]) for link in found if link["vhost"] == vhost
                ]

            assert await eventually_async(links, what="a native link") == [("exchange", "x", "o")]
            found = [each for each in await client.parameters() if each["vhost"] == vhost]
            uris = {each["name"]: each["value"]["uri"] for each in found if each["component"] == "federation-upstream"}
            assert {name: parse_amqp(uri).user for name, uri in uris.items()} == {"o": "guest"}, found


@pytest.mark.thorough
async def test_many_bindings_in_one_answer(broker: Node, vhost: str) -> None:
    bindings = [
        {
            "source": "x",
            "vhost": vhost,
            "destination": "q",
            "destination_type": "queue",
            "routing_key": f"key.{number}",
            "arguments": {},
        }
        for number in range(MANY)
    ]
    broker.admin.exchange(vhost, "x", durable=False)
    broker.admin.queue(vhost, "q", durable=False)
    for begin in range(0, MANY, 5_000):
        broker.admin.post("definitions", body={"bindings": bindings[begin : begin + 5_000]})
    async with ManagementClient([parse_http(broker.management_uri())]) as client:
        took, found = list[float](), list[BindingAnswer]()
        while len(took) < 3 and (not took or took[-1] >= MOST_CPU):  # others may have the caches for a while
            begun = time.process_time()
            found = await client.bindings(vhost)
            took.append(time.process_time() - begun)
    assert len({binding["routing_key"] for binding in found if binding["source"] == "x"}) == MANY
    assert took[-1] < MOST_CPU, took


async def test_a_queues_policy_is_known_at_once(broker: Node, vhost: str) -> None:
    """With statistics it arrives as late as they do."""
    for number in range(10):
        broker.admin.queue(vhost, f"q{number}")
    async with ManagementClient([parse_http(broker.management_uri())]) as client:
        await client.queues(vhost)
        broker.admin.policy(vhost, "p", "^q", definition={"max-length": 5}, apply_to="queues")
        assert {each.get("policy") for each in await client.queues(vhost)} == {"p"}
