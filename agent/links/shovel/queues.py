"""The queues of a shovel: one that exists is used as it is, a missing one is declared."""

from __future__ import annotations

from typing import NamedTuple

from agent.amqp.connect import Connection
from agent.amqp.declares import Opener, declare_any
from agent.amqp.failures import NOT_FOUND
from agent.amqp.rpc import refusal
from agent.amqp.wire.channel import ChannelClosedError
from agent.core.model import QueueDestination, QueueSource
from agent.errors import TransientError


class QueueFound(NamedTuple):
    """The numbers of ready messages and of consumers; `was_missing`: it has been declared just now."""

    messages: int
    consumers: int
    was_missing: bool = False


async def ensure_queue(
    connection: Connection, wanted: QueueSource | QueueDestination, *, spare: Opener | None, key: str = ""
) -> QueueFound:
    """Ensure a queue.

    One that exists is used as it is; a missing one is declared durable. Some brokers close the connection over a
    refusal with a long name: those are asked on a `spare` one.

    `key` is the configuration's key that says that it is there already: then TransientError is raised if it is missing.
    """
    queue = wanted.queue
    found = await declare_any(connection, "queue", queue, spare=spare, passive=True)
    if not isinstance(found, ChannelClosedError):
        return QueueFound(found["messages"], found["consumers"])
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
    return QueueFound(found["messages"], found["consumers"], was_missing=True)
