"""The two brokers of a shovel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent.core.addresses.uri import AmqpUri
from agent.core.model import ExchangeDestination, ExchangeSource, QueueDestination, QueueSource, ShovelLink, ShovelPlace
from agent.core.rules import names
from agent.links.ends import End, Ends, reachable

DEFAULT_VHOST: Final = "/"


def shovel_ends(link: ShovelLink, downstream: Sequence[AmqpUri]) -> Ends:
    """An error names the end and not the shovel, so that shovels between the same brokers share connections; wherever
    the error is shown, the shovel's name is beside it."""
    shovel = link.shovel
    return Ends(
        _end(link, "shovel source", reachable(shovel.source_uris, DEFAULT_VHOST, downstream), _named(shovel.source)),
        _end(
            link,
            "shovel destination",
            reachable(shovel.destination_uris, DEFAULT_VHOST, downstream),
            _named(shovel.destination),
        ),
    )


def _end(link: ShovelLink, where: str, uris: tuple[AmqpUri, ...], named: str) -> End:
    may_be_lost = any(not names.can_be_declared(named, uri.vhost(DEFAULT_VHOST)) for uri in uris)
    return End(where, uris, DEFAULT_VHOST, may_be_lost=may_be_lost, name=f"Shovel {link.name}")


def _named(place: ShovelPlace) -> str:
    match place:
        case QueueSource(queue) | QueueDestination(queue):
            return queue
        case ExchangeSource(exchange):
            return exchange
        case ExchangeDestination(exchange):
            return exchange or ""
