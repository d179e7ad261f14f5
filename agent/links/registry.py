"""The kinds of links that this agent runs; what the runtime needs of them comes from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from agent.amqp.data.splice import Counts
from agent.core.links.lifecycle import Side
from agent.core.model import Link, LinkKind
from agent.links.brokers import Brokers
from agent.links.exchange.link import ExchangeLinks
from agent.links.exchange.renaming import sweep
from agent.links.exchange.shared_queues import SharedQueues
from agent.links.kind import Kind, RunnableLink

__all__ = ["KINDS", "Kinds", "SharedQueues", "sweep"]

KINDS: Final[Mapping[LinkKind, Callable[[Brokers], Kind]]] = {LinkKind.EXCHANGE: ExchangeLinks}


class Kinds:
    """One of each kind, for one agent."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self._kinds = {kind: make(brokers) for kind, make in KINDS.items()}

    def shown_certificates(self, link: Link) -> Iterator[tuple[Side, bytes]]:
        """What the brokers at both ends of a link have shown, as DER."""
        kind = self._kinds.get(link.kind)
        return iter(()) if kind is None else self.brokers.shown_certificates(kind.ends(link), link.id)

    def runnable(self, link: Link, counts: Counts, on_noted: Callable[[], None]) -> RunnableLink:
        return self._kinds[link.kind].runnable(link, counts, on_noted)
