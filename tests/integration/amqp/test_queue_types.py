"""Whether a queue is replicated, as brokers of every release show it."""

from collections.abc import Callable

from agent.amqp.queue_types import is_replicated
from agent.amqp.wire import methods
from tests.integration.amqp.conftest import Connecting
from tests.lab.node import Node

Naming = Callable[[str], str]
OF_TYPES: dict[str, bool] = {"classic": False, "quorum": True, "stream": True}


async def test_the_type_of_a_queue_is_known_and_none_is_declared(
    any_broker: Node, connecting: Connecting, name: Naming
) -> None:
    with any_broker.admin.temporary_vhost(name("vhost")) as vhost:
        for kind in OF_TYPES:
            any_broker.admin.queue(vhost, f"a {kind} one (1)", arguments={"x-queue-type": kind})
        any_broker.admin.queue(vhost, "plain")
        any_broker.admin.queue(vhost, "passing", auto_delete=True)
        any_broker.admin.queue(vhost, "limited", arguments={"x-queue-type": "quorum", "x-max-length": 5})
        long = "a.long.name." + "n" * 200
        any_broker.admin.queue(vhost, long, arguments={"x-queue-type": "quorum"})
        connection = await connecting(any_broker.uri(vhost))
        before = queues(any_broker, vhost)
        for kind, expected in OF_TYPES.items():
            assert await is_replicated(connection, f"a {kind} one (1)") is expected
        assert [await is_replicated(connection, each) for each in ("plain", "passing")] == [False, False]
        unknown = ("limited", long, "missing", "ä" * 127)
        assert [await is_replicated(connection, each) for each in unknown] == [None] * 4
        assert not connection.is_closed
        assert queues(any_broker, vhost) == before


async def test_of_an_exclusive_queue_and_of_one_that_may_not_be_configured(
    any_broker: Node, connecting: Connecting, name: Naming
) -> None:
    admin, user = any_broker.admin, name("reader")
    with admin.temporary_vhost(name("vhost")) as vhost:
        admin.user(user, "p")
        admin.permissions(vhost, user, configure="^$")
        admin.queue(vhost, "work", arguments={"x-queue-type": "classic"})
        owner = await connecting(any_broker.uri(vhost))
        channel = await owner.channel()
        await channel.ask(methods.QUEUE_DECLARE, methods.QUEUE_DECLARE_OK, queue="own", exclusive=True)
        assert await is_replicated(await connecting(any_broker.uri(vhost)), "own") is False
        assert await is_replicated(await connecting(any_broker.uri(vhost, user, "p")), "work") is None
    admin.delete("users", user)


def queues(broker: Node, vhost: str) -> set[str]:
    return {each["name"] for each in broker.admin.get("queues", vhost)}
