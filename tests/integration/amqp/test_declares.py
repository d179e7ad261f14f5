"""What stands on real brokers, asked without changing anything."""

import time
from collections.abc import Callable

import pytest

from agent.amqp.declares import ObjectFound, Presence, probe
from agent.amqp.wire import methods
from agent.errors import TransientError
from tests.integration.amqp.conftest import Connecting
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import publish_async

Naming = Callable[[str], str]
Proxies = Callable[[Node | int], Proxy]


async def test_what_is_there_and_what_is_not(broker: Node, connecting: Connecting, name: Naming) -> None:
    with broker.admin.temporary_vhost(name("vhost")) as vhost:
        broker.admin.queue(vhost, "full", arguments={"x-internal-purpose": "federation", "x-expires": 60_000})
        broker.admin.queue(vhost, "quorum", arguments={"x-queue-type": "quorum"})
        broker.admin.exchange(vhost, "odd", "headers", auto_delete=True, arguments={"alternate-exchange": "a"})
        broker.admin.exchange(vhost, "hidden", "fanout", internal=True)
        connection = await connecting(broker.uri(vhost))
        assert await publish_async(broker.uri(vhost), "", "full", ["m"] * 3) == 3
        found = await probe(
            connection,
            queues=["full", "quorum", "none"],
            exchanges=["odd", "hidden", "amq.topic", "none"],
        )
        assert found.queues["full"] == ObjectFound(Presence.EXISTS, messages=3)
        assert found.queues["quorum"] == ObjectFound(Presence.EXISTS)
        assert found.queues["none"].presence is Presence.MISSING
        assert "NOT_FOUND" in found.queues["none"].detail
        # A passive declare looks at the name alone: type, flags and arguments are not compared.
        exists = ObjectFound(Presence.EXISTS)
        assert [found.exchanges[each] for each in ("odd", "hidden", "amq.topic")] == [exists] * 3
        assert found.exchanges["none"].presence is Presence.MISSING


async def test_consumers_are_counted(broker: Node, connecting: Connecting, vhost: str) -> None:
    broker.admin.queue(vhost, "q")
    connection = await connecting(broker.uri(vhost))
    channel = await connection.channel()
    await channel.ask(methods.BASIC_CONSUME, queue="q")
    assert (await probe(connection, queues=["q"])).queues["q"].consumers == 1


async def test_a_queue_of_another_connection(broker: Node, connecting: Connecting, name: Naming) -> None:
    queue = name("exclusive")
    owner = await connecting(broker.uri())
    channel = await owner.channel()
    await channel.ask(methods.QUEUE_DECLARE, queue=queue, exclusive=True)
    found = (await probe(await connecting(broker.uri()), queues=[queue])).queues[queue]
    assert found.presence is Presence.LOCKED
    assert "RESOURCE_LOCKED" in found.detail


async def test_a_name_that_may_not_be_asked_for(broker: Node, connecting: Connecting) -> None:
    found = await probe(await connecting(broker.uri()), exchanges=[""])
    assert found.exchanges[""].presence is Presence.REFUSED


async def test_nothing_to_ask(broker: Node, connecting: Connecting) -> None:
    found = await probe(await connecting(broker.uri()))
    assert (found.queues, found.exchanges) == ({}, {})


@pytest.mark.parametrize("there", [True, False])
async def test_300_names_over_a_slow_path(
    broker: Node, connecting: Connecting, vhost: str, proxy_to: Proxies, there: bool
) -> None:
    names = [f"q{number}" for number in range(300)]
    if there:
        for each in names:
            broker.admin.queue(vhost, each, durable=False)
    proxy = proxy_to(broker)
    proxy.delay(0.05)
    connection = await connecting(broker.uri(vhost, port=proxy.port))
    begun = time.monotonic()
    found = await probe(connection, queues=names)
    took = time.monotonic() - begun
    expected = Presence.EXISTS if there else Presence.MISSING
    assert {each.presence for each in found.queues.values()} == {expected}
    assert len(found.queues) == 300
    assert took < 28  # one after another: 30
    assert not connection.is_closed


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_few_channels(broker: Node, connecting: Connecting, limit: int) -> None:
    connection = await connecting(f"{broker.uri()}?channel_max={limit}")
    names = [f"none{number}" for number in range(100)]
    found = await probe(connection, queues=names, exchanges=names)
    assert {each.presence for each in found.queues.values()} == {Presence.MISSING}
    assert len(found.exchanges) == 100


async def test_a_connection_lost_meanwhile(broker: Node, connecting: Connecting, proxy_to: Proxies) -> None:
    proxy = proxy_to(broker)
    connection = await connecting(broker.uri(port=proxy.port))
    proxy.cut()
    with pytest.raises(TransientError, match=r"^upstream origin"):
        await probe(connection, queues=[f"q{number}" for number in range(100)])
