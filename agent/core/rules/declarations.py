"""The objects that a link declares upstream, with all arguments: brokers compare them, and the native plugin uses the
same."""

from __future__ import annotations

from typing import Any, Final

from agent.core import fields
from agent.core.fields import Table
from agent.core.model import Exchange, LinkSettings, Queue, QueueType
from agent.core.rules.hops import Site

PURPOSE: Final = ("x-internal-purpose", fields.text("federation"))
TYPE: Final = "x-queue-type"
NATIVE_TYPE: Final = "x-federation-upstream"
FALLBACK_TYPE: Final = "fanout"


def queue_arguments(settings: LinkSettings) -> Table:
    given = (("x-expires", settings.expires), ("x-message-ttl", settings.message_ttl))
    numbers = tuple((key, fields.long(value)) for key, value in given if value is not None)
    return (*numbers, PURPOSE, ("x-queue-type", fields.text(settings.queue_type)))


def offset_queue(*, limits_deliveries: bool) -> Table:
    """The arguments of the queue that remembers a place in a stream, which is to be as safe as the stream. Each look
    into it counts as a delivery, so where brokers limit these, it has no limit. Former ones take -1 for none at all."""
    unlimited = (("x-delivery-limit", fields.long(-1)),) if limits_deliveries else ()
    return (*unlimited, ("x-max-length", fields.long(1)), (TYPE, fields.text(QueueType.QUORUM)))


def internal_arguments(max_hops: int, downstream: Site) -> Table:
    """The arguments of an exchange of the plugin's own type, which itself drops messages that have reached max-hops."""
    return (
        ("x-max-hops", fields.long(max_hops)),
        ("x-downstream-name", fields.text(downstream.cluster or "")),
        ("x-downstream-vhost", fields.text(downstream.vhost)),
        PURPOSE,
    )


def like_queue(queue: Queue) -> Table:
    """The arguments of a missing queue upstream that is declared like the downstream's.

    A quorum queue may have its type from the vhost's default alone, which may be another one upstream.
    """
    if queue.type is QueueType.QUORUM and fields.get(queue.arguments, TYPE) is None:
        return (*queue.arguments, (TYPE, fields.text(QueueType.QUORUM)))
    return queue.arguments


def like_exchange(exchange: Exchange) -> dict[str, Any]:
    """The arguments of the method that declares it, but for its name."""
    return {
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def undeclarable(name: str, like: Queue) -> str:
    """The reason why a missing queue upstream can't be declared like a queue whose arguments can't be represented."""
    return (
        f"queue {name!r} is missing, and can't be declared like {like.name!r} downstream, as that {like.unusable}: "
        "declare it upstream"
    )
