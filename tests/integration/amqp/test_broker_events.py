"""What real brokers tell by themselves."""

import asyncio
from collections.abc import Callable

import pytest

from agent.amqp.broker_events import BINDING_EVENTS, DEFINITION_EVENTS, BrokerEvent, EventReader, NoEvents, subscribe
from agent.amqp.connect import Connection
from agent.amqp.wire import methods
from agent.errors import TransientError
from tests.integration.amqp.conftest import Connecting
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE

Naming = Callable[[str], str]
Proxies = Callable[[Node | int], Proxy]
SENTINEL = "S3NTINEL"


async def listen(connection: Connection, *keys: str) -> EventReader:
    events = await subscribe(connection, keys or (*DEFINITION_EVENTS, *BINDING_EVENTS))
    assert isinstance(events, EventReader)
    return events


async def until(events: EventReader, done: Callable[[BrokerEvent], bool]) -> list[BrokerEvent]:
    heard: list[BrokerEvent] = []
    async with asyncio.timeout(DEADLINE):
        async for event in events:
            heard.append(event)
            if done(event):
                return heard
    raise AssertionError("events don't end by themselves")


async def test_a_parameter_of_a_vhost_comes_without_its_value(
    native_broker: Node, connecting: Connecting, name: Naming
) -> None:
    connection = await connecting(native_broker.uri())
    with native_broker.admin.temporary_vhost(name("vhost")) as vhost:
        async with await listen(connection, "parameter.*") as events:
            upstream = {"uri": f"amqp://u:{SENTINEL}@127.0.0.1:1"}
            native_broker.admin.parameter("federation-upstream", vhost, "o", upstream)
            native_broker.admin.delete("parameters", "federation-upstream", vhost, "o")
            heard = await until(events, lambda event: event.name == "parameter.cleared" and event.vhost == vhost)
        set_here = [event for event in heard if event.name == "parameter.set" and event.vhost == vhost]
        assert [(event.fields["component"], event.fields["name"]) for event in set_here] == [
            ("federation-upstream", "o")
        ]
        assert SENTINEL not in repr(heard)


async def test_a_storm_is_heard_in_order(broker: Node, connecting: Connecting, vhost: str) -> None:
    connection = await connecting(broker.uri(vhost))
    channel = await connection.channel()
    await channel.ask(methods.QUEUE_DECLARE, queue="q")
    async with await listen(await connecting(broker.uri()), *BINDING_EVENTS) as events:
        for number in range(3_000):
            channel.send(methods.QUEUE_BIND, queue="q", exchange="amq.topic", routing_key=str(number), nowait=True)
        heard = await until(events, lambda event: event.fields.get("routing_key") == "2999")
    keys = [event.fields["routing_key"] for event in heard if event.vhost == vhost]
    assert keys == [str(number) for number in range(3_000)]


async def test_a_broker_that_tells_nothing(broker: Node, connecting: Connecting, vhost: str) -> None:
    connection = await connecting(broker.uri(vhost))  # the exchange is in / only
    answer = await subscribe(connection, DEFINITION_EVENTS)
    assert isinstance(answer, NoEvents)
    assert "enable rabbitmq_event_exchange" in answer.reason
    assert not connection.is_closed


async def test_a_user_who_may_not_read_it(broker: Node, connecting: Connecting, name: Naming) -> None:
    user = name("user")
    broker.admin.user(user, "p")
    broker.admin.permissions("/", user, read="^amq.gen")
    connection = await connecting(broker.uri("/", user, "p"))
    answer = await subscribe(connection, DEFINITION_EVENTS)
    assert isinstance(answer, NoEvents)
    assert "can't be read (403): ACCESS_REFUSED" in answer.reason
    assert not connection.is_closed


async def test_a_lost_connection_ends_them(broker: Node, connecting: Connecting, proxy_to: Proxies) -> None:
    proxy = proxy_to(broker)
    events = await listen(await connecting(broker.uri(port=proxy.port)))
    proxy.cut()
    with pytest.raises(TransientError, match=r"^upstream origin"):
        await until(events, lambda _: False)
    await events.close()


async def test_a_queue_that_was_deleted_ends_them(broker: Node, connecting: Connecting) -> None:
    connection = await connecting(broker.uri())
    events = await listen(connection, "vhost.*")
    [queue] = [
        binding["destination"]
        for binding in broker.admin.get("exchanges", "/", "amq.rabbitmq.event", "bindings", "source")
        if binding["routing_key"] == "vhost.*"
    ]
    channel = await connection.channel()
    await channel.ask(methods.QUEUE_DELETE, queue=queue)
    with pytest.raises(TransientError, match="ended the subscription"):
        await until(events, lambda _: False)
    await events.close()
