"""The kinds of links that this agent runs; what the runtime needs of them comes from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from agent.amqp.connect import Connection
from agent.amqp.data.delivery import Destination
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.data.splice import Counts
from agent.core.model import ExchangeLink, Link, LinkKind, QueueLink, ShovelLink
from agent.errors import Side
from agent.links.brokers import Brokers
from agent.links.ends import Ends
from agent.links.exchange.link import ExchangeLinks
from agent.links.exchange.renaming import sweep
from agent.links.exchange.shared_queues import SharedQueues
from agent.links.kind import Kind, RunnableLink
from agent.links.queue.link import QueueLinks
from agent.links.shovel.link import ShovelLinks

__all__ = ["KINDS", "Kinds", "SharedQueues", "sweep"]

OfKind = TypeVar("OfKind", bound=Link)


class KindOfAgent(Generic[OfKind]):
    """One kind for one agent; a link of another is refused."""

    def __init__(self, links: type[OfKind], kind: Kind[OfKind]) -> None:
        self._links = links
        self._kind = kind

    def ends(self, link: Link) -> Ends:
        return self._kind.ends(self._checked(link))

    def runnable(self, link: Link, counts: Counts, on_noted: Callable[[], None]) -> RunnableLink:
        return self._kind.runnable(self._checked(link), counts, on_noted)

    def rewriter(self, link: Link, source: Connection, destination: Connection) -> Rewriter:
        return self._kind.rewriter(self._checked(link), source, destination)

    def destination(self, link: Link) -> Destination:
        return self._kind.destination(self._checked(link))

    def _checked(self, link: Link) -> OfKind:
        if not isinstance(link, self._links):
            raise TypeError(f"link {link.id} is registered as another kind than {link.kind}")
        return link


@dataclass(frozen=True, slots=True)
class Registered(Generic[OfKind]):
    """The class of a kind's links, and what makes its one `Kind` for an agent."""

    links: type[OfKind]
    make: Callable[[Brokers], Kind[OfKind]]

    def for_agent(self, brokers: Brokers) -> KindOfAgent[OfKind]:
        return KindOfAgent(self.links, self.make(brokers))


KINDS: Final[Mapping[LinkKind, Registered[Any]]] = {
    LinkKind.EXCHANGE: Registered(ExchangeLink, ExchangeLinks),
    LinkKind.QUEUE: Registered(QueueLink, QueueLinks),
    LinkKind.SHOVEL: Registered(ShovelLink, ShovelLinks),
}


class Kinds:
    """One of each kind, for one agent."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self._kinds = {kind: registered.for_agent(brokers) for kind, registered in KINDS.items()}

    def shown_certificates(self, link: Link) -> Iterator[tuple[Side, bytes]]:
        """What the brokers at both ends of a link have shown, as DER."""
        kind = self._kinds.get(link.kind)
        return iter(()) if kind is None else self.brokers.shown_certificates(kind.ends(link), link.id)

    def runnable(self, link: Link, counts: Counts, on_noted: Callable[[], None]) -> RunnableLink:
        return self._kinds[link.kind].runnable(link, counts, on_noted)

    def ends(self, link: Link) -> Ends:
        return self._kinds[link.kind].ends(link)

    def rewriter(self, link: Link, source: Connection, destination: Connection) -> Rewriter:
        return self._kinds[link.kind].rewriter(link, source, destination)

    def destination(self, link: Link) -> Destination:
        return self._kinds[link.kind].destination(link)
