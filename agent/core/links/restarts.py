"""Which changes of its definition a running link has to be restarted for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from agent.core.model import ExchangeLink, Link, QueueLink, ShovelLink
from agent.errors import Place

_ANYWHERE: Final = Place("")


def needs_restart(running: Link, wanted: Link) -> bool:
    """Which policy asks for the same link is no reason, nor where its definition is written."""
    return _essence(running) != _essence(wanted)


def _essence(link: Link) -> Link:
    match link:
        case ExchangeLink():
            return replace(link, exchange=replace(link.exchange, policy=None), policy="")
        case QueueLink():
            return replace(link, queue=replace(link.queue, policy=None), policy="")
        case ShovelLink():
            return replace(link, shovel=replace(link.shovel, place=_ANYWHERE))


def asks_the_same(former: Link, now: Link) -> bool:
    """Whether two definitions differ in credentials at most. Those are no reason to move again what a shovel has moved,
    or counted, before.
    """
    if isinstance(former, ShovelLink) and isinstance(now, ShovelLink):
        return _without_addresses(former) == _without_addresses(now) and _addresses(former) == _addresses(now)
    return not needs_restart(former, now)


def _without_addresses(link: ShovelLink) -> ShovelLink:
    return replace(link, uris=(), shovel=replace(link.shovel, source_uris=(), destination_uris=(), place=_ANYWHERE))


def _addresses(link: ShovelLink) -> list[list[str]]:
    """As they may be shown."""
    return [[uri.safe for uri in uris] for uris in (link.shovel.source_uris, link.shovel.destination_uris)]


def leads_elsewhere(former: Iterable[str], now: Iterable[str]) -> bool:
    """Whether none of a link's addresses is one that it had, so that what it knows may be of another broker.

    Names can't tell: brokers that definitions are copied between have the same cluster name.
    """
    return not set(former) & set(now)
