"""Whether a queue is replicated. No answer of AMQP shows its type, but a refusal does."""

from __future__ import annotations

import re
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.failures import PRECONDITION_FAILED, RESOURCE_LOCKED
from agent.amqp.questions import attempt
from agent.amqp.wire import methods
from agent.amqp.wire.channel import ChannelClosedError
from agent.core import fields
from agent.core.rules import declarations, names

NO_TYPE: Final = "asked by federation-agent"
"""Brokers refuse it for every queue, so the question declares none, not even where the queue is gone by now."""
REPLICATED: Final = frozenset({"quorum", "stream"})


async def is_replicated(connection: Connection, queue: str) -> bool | None:
    """None where that can't be known: a queue with other arguments is refused because of these, one with a long name by
    a text that lacks its end, and who may not configure the queue hears nothing of it.
    """
    if not names.can_be_declared(queue, connection.vhost):
        return None
    found = await attempt(
        connection,
        methods.QUEUE_DECLARE,
        methods.QUEUE_DECLARE_OK,
        queue=queue,
        durable=True,
        arguments=((declarations.TYPE, fields.text(NO_TYPE)),),
    )
    if not isinstance(found, ChannelClosedError):
        return None
    if found.code == RESOURCE_LOCKED:  # exclusive, which none is that is replicated
        return False
    return told(str(found), queue, connection.vhost) if found.code == PRECONDITION_FAILED else None


def told(text: str, queue: str, vhost: str) -> bool | None:
    """What the refusal shows. Replicated queues are durable, and never deleted automatically."""
    where = re.escape(f"for queue '{queue}' in vhost '{vhost}': ")
    if re.search(f"inequivalent arg '(durable|auto_delete)' {where}", text):
        return False
    found = re.search(
        f"inequivalent arg '{declarations.TYPE}' {where}received .* but current is (?:none|'([a-z_]+)')$", text
    )
    return None if found is None else found[1] in REPLICATED
