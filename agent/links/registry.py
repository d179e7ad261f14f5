"""The registry of the kinds of links that this agent runs; what the runtime needs of them comes from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.core.model import Link, LinkKind
from agent.links.brokers import Brokers
from agent.links.exchange.link import ExchangeLinks
from agent.links.exchange.removal import sweep
from agent.links.kind import Kind
from agent.links.queue.link import QueueLinks
from agent.links.shovel.link import ShovelLinks

__all__ = ["KINDS", "Kinds", "sweep"]

KINDS: Final[Mapping[LinkKind, Callable[[Brokers], Kind[Any]]]] = {
    LinkKind.EXCHANGE: ExchangeLinks,
    LinkKind.QUEUE: QueueLinks,
    LinkKind.SHOVEL: ShovelLinks,
}


class Kinds:
    """One of each kind, for one agent."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self._kinds = {kind: make(brokers) for kind, make in KINDS.items()}

    def of(self, link: Link) -> Kind[Any]:
        return self._kinds[link.kind]
