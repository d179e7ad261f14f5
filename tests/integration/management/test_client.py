"""What the HTTP API of real brokers answers."""

import time
from collections.abc import AsyncIterator, Callable

import pytest

from agent.core.addresses.http_url import parse
from agent.core.addresses.uri import parse as parse_amqp
from agent.errors import PermanentError
from agent.management.client import ManagementClient
from tests.lab.node import Node
from tests.lab.waiting import eventually_async

Naming = Callable[[str], str]
BrokerOn = Callable[..., Node]
MANY = 10_000
RELEASES = [None, pytest.param("trixie", marks=pytest.mark.versions), pytest.param("sid", marks=pytest.mark.versions)]


@pytest.fixture(params=RELEASES)
def any_broker(request: pytest.FixtureRequest, broker: Node, broker_on: BrokerOn) -> Node:
    """A broker of every release in turn."""
    return broker if request.param is None else broker_on(request.param)


@pytest.fixture
async def client(any_broker: Node) -> AsyncIterator[ManagementClient]:
    async with ManagementClient([parse(any_broker.management_uri())]) as client:
        yield client


async def test_overview(any_broker: Node, client: ManagementClient) -> None:
    overview = await client.overview()
    assert overview["cluster_name"] == any_broker.cluster_name
    assert overview["rabbitmq_version"].split(".")[0].isdigit()


async def test_a_vhost_of_any_name(any_broker: Node, client: ManagementClient, name: Naming) -> None:
    odd = name("a/b%c d?ä{}")
    with any_broker.admin.temporary_vhost(odd):
        assert odd in [vhost["name"] for vhost in await client.vhosts()]
        any_broker.admin.exchange(odd, "x/y {0}")
        any_broker.admin.queue(odd, "q")
        any_broker.admin.bind(odd, "x/y {0}", "q", "k", arguments={"n": 1, "t": {"a": [1, "b"]}})
        expected = {
            "source": "x/y {0}",
            "destination": "q",
            "destination_type": "queue",
            "routing_key": "k",
            "arguments": {"n": 1, "t": {"a": [1, "b"]}},
        }
        assert expected in await client.bindings(odd)
        assert await client.bindings_from(odd, "x/y {0}") == [expected]
        assert await client.bindings_from(odd, "amq.topic") == []


async def test_parameters_and_policies(any_broker: Node, client: ManagementClient, name: Naming) -> None:
    with any_broker.admin.temporary_vhost(name("vhost")) as vhost:
        # Any broker takes a policy with keys that it knows; federation's need the plugin.
        any_broker.admin.policy(vhost, "p", "^x", definition={"max-length": 5}, apply_to="queues", priority=7)
        assert {
            "vhost": vhost,
            "name": "p",
            "pattern": "^x",
            "apply-to": "queues",
            "priority": 7,
            "definition": {"max-length": 5},
        } in await client.policies()
        any_broker.admin.put("vhost-limits", vhost, "max-queues", body={"value": 9})
        assert {"component": "vhost-limits", "vhost": vhost, "name": "limits", "value": {"max-queues": 9}} in (
            await client.parameters()
        )


async def test_a_global_parameter(any_broker: Node, client: ManagementClient, name: Naming) -> None:
    parameter, value = name("federation-agent"), {"upstreams": {"o": {"uri": "amqp://h", "max-hops": 2}}, "list": [1]}
    assert await client.global_parameter(parameter) is None
    any_broker.admin.global_parameter(parameter, value)
    assert await client.global_parameter(parameter) == value
    any_broker.admin.delete("global-parameters", parameter)
    assert await client.global_parameter(parameter) is None


async def test_exchanges_and_queues_tell_their_policy_at_once(
    any_broker: Node, client: ManagementClient, name: Naming
) -> None:
    with any_broker.admin.temporary_vhost(name("vhost")) as vhost:
        any_broker.admin.policy(vhost, "of-queues", "^fed", definition={"max-length": 5}, apply_to="queues")
        any_broker.admin.policy(
            vhost, "of-exchanges", "^fed", definition={"alternate-exchange": "a"}, apply_to="exchanges"
        )
        any_broker.admin.exchange(vhost, "fed.x", "headers", arguments={"alternate-exchange": "ae"})
        any_broker.admin.queue(vhost, "fed.q", arguments={"x-queue-type": "quorum"})
        any_broker.admin.queue(vhost, "fed.c", arguments={"x-internal-purpose": "federation"})
        any_broker.admin.queue(vhost, "other")
        exchanges = {exchange["name"]: exchange for exchange in await client.exchanges(vhost)}
        assert exchanges["fed.x"] == {
            "name": "fed.x",
            "type": "headers",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "ae"},
            "policy": "of-exchanges",
        }
        assert exchanges["amq.rabbitmq.trace"]["internal"]
        assert not exchanges["amq.topic"].get("policy")
        queues = {queue["name"]: queue for queue in await client.queues(vhost)}
        assert (queues["fed.q"]["type"], queues["fed.q"]["policy"]) == ("quorum", "of-queues")
        assert queues["fed.c"]["type"] == "classic"
        assert queues["fed.c"]["policy"] == "of-queues"
        assert queues["fed.c"]["arguments"]["x-internal-purpose"] == "federation"
        assert not queues["other"].get("policy")
        assert {queue.get("exclusive") or False for queue in queues.values()} == {False}


async def test_a_vhost_that_is_not_there(any_broker: Node, client: ManagementClient, name: Naming) -> None:
    missing = name("missing")
    with pytest.raises(PermanentError, match=f"vhost '{missing}' does not exist"):
        await client.exchanges(missing)


async def test_no_native_plugin_no_links(any_broker: Node, client: ManagementClient) -> None:
    assert await client.federation_links() is None


async def test_links_of_the_native_plugin(native_broker: Node, name: Naming) -> None:
    with native_broker.admin.temporary_vhost(name("vhost")) as vhost:
        native_broker.admin.parameter("federation-upstream", vhost, "o", {"uri": native_broker.uri(vhost)})
        native_broker.admin.policy(vhost, "p", "^x$", definition={"federation-upstream": "o"}, apply_to="exchanges")
        native_broker.admin.exchange(vhost, "x")
        async with ManagementClient([parse(native_broker.management_uri())]) as client:

            async def links() -> list[tuple[str, str | None, str]]:
                found = await client.federation_links() or []
                return [
                    (link["type"], link.get("exchange"), link["upstream"]) for link in found if link["vhost"] == vhost
                ]

            assert await eventually_async(links, what="a native link") == [("exchange", "x", "o")]
            [parameter] = [each for each in await client.parameters() if each["vhost"] == vhost]
            assert parse_amqp(parameter["value"]["uri"]).user == "guest"


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
    async with ManagementClient([parse(broker.management_uri())]) as client:
        begun = time.monotonic()
        found = await client.bindings(vhost)
        took = time.monotonic() - begun
    assert len({binding["routing_key"] for binding in found if binding["source"] == "x"}) == MANY
    assert took < 2.5  # of 40,000 thus 10 s
