"""The queues and exchanges of a shovel: looks for them, and declares those that may be declared."""

from __future__ import annotations

from agent.amqp.connect import Connection
from agent.amqp.declares import Opener, declare, declare_any
from agent.amqp.failures import NOT_FOUND, one_line
from agent.amqp.rpc import attempt, demand, refusal
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.model import ExchangeDestination, ExchangeSource, QueueDestination, QueueSource
from agent.errors import BrokerError, TransientError


async def ensure_queue(
    connection: Connection, wanted: QueueSource | QueueDestination, *, spare: Opener, key: str
) -> tuple[int, int]:
    """Ensure a queue; return the numbers of its ready messages and of its consumers.

    One that exists is used as it is; a missing one is declared durable. Some brokers close the connection over a
    refusal with a long name: those are asked on a `spare` one.

    `key` is the configuration's key that says that it is there already: then TransientError is raised if it is missing.
    """
    queue = wanted.queue
    found = await declare_any(connection, "queue", queue, spare=spare, passive=True)
    if isinstance(found, ChannelClosedError):
        if found.code != NOT_FOUND:
            raise refusal(connection, f"looking for queue {queue!r}", found)
        if wanted.is_predeclared:
            raise TransientError(
                f"{connection.where}: queue {queue!r} is missing in vhost {connection.vhost!r}, and {key} says that it "
                f"exists: declare it, or leave out {key}; the shovel waits for it"
            ) from found
        found = await declare_any(connection, "queue", queue, spare=spare, durable=True, arguments=wanted.arguments)
        if isinstance(found, ChannelClosedError):
            raise refusal(connection, f"declaring queue {queue!r}", found)
    return found["messages"], found["consumers"]


async def bind_own_queue(connection: Connection, source: ExchangeSource) -> str:
    """Declare a new queue, bind it to the exchange and return its name; it goes with the connection, as the plugin's
    does."""
    declared = await demand(
        connection,
        "declaring a queue of the shovel's own",
        methods.QUEUE_DECLARE,
        methods.QUEUE_DECLARE_OK,
        exclusive=True,
    )
    queue: str = declared["queue"]
    bound = await attempt(
        connection,
        methods.QUEUE_BIND,
        methods.QUEUE_BIND_OK,
        queue=queue,
        exchange=source.exchange,
        routing_key=source.routing_key,
    )
    if isinstance(bound, ChannelClosedError):
        raise _no_exchange(connection, source.exchange, bound, doing="binding to")
    return queue


async def ensure_destination(
    connection: Connection, destination: QueueDestination | ExchangeDestination, *, spare: Opener
) -> None:
    """Declare a queue that is missing; raise BrokerError if an exchange is, since publishing to it would close the
    channel."""
    if isinstance(destination, QueueDestination):
        await ensure_queue(connection, destination, spare=spare, key="dest-predeclared")
    elif destination.exchange:
        found = await declare(connection, "exchange", destination.exchange, passive=True)
        if isinstance(found, ChannelClosedError):
            raise _no_exchange(connection, destination.exchange, found, doing="looking for")


def explained(error: BrokerError) -> BrokerError:
    """The error, with what to do if messages go to an exchange that is missing at the destination."""
    cause = error.__cause__
    if not isinstance(cause, ChannelClosedError) or cause.code != NOT_FOUND:
        return error
    advised = TransientError(f"{error}: declare it, or name another dest-exchange; the shovel tries again")
    advised.__cause__, advised.side = cause, error.side
    return advised


def _no_exchange(connection: Connection, exchange: str, error: ChannelClosedError, *, doing: str) -> BrokerError:
    if error.code != NOT_FOUND:
        return refusal(connection, f"{doing} exchange {exchange!r}", error)
    missing = TransientError(
        f"{connection.where}: exchange {exchange!r} is missing in vhost {connection.vhost!r}: declare it; "
        f"the shovel waits for it ({one_line(str(error))})"
    )
    missing.__cause__ = error
    return missing
