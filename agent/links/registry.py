"""The kinds of links that this agent runs; what the runtime needs of them comes from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from agent.amqp.data.splice import Counts
from agent.core.model import ExchangeLink, Link, LinkKind
from agent.links.brokers import Brokers
from agent.links.exchange.link import ExchangeLinks
from agent.links.exchange.renaming import sweep
from agent.links.exchange.shared_queues import SharedQueues
from agent.links.kind import Kind, RunnableLink

__all__ = ["KINDS", "Kinds", "SharedQueues", "sweep"]

OfKind = TypeVar("OfKind", bound=Link)
MakeRunnable = Callable[[Link, Counts, Callable[[], None]], RunnableLink]


@dataclass(frozen=True, slots=True)
class Registered(Generic[OfKind]):
    """The class of a kind's links, and what makes its one `Kind` for an agent."""

    links: type[OfKind]
    make: Callable[[Brokers], Kind[OfKind]]

    def for_agent(self, brokers: Brokers) -> MakeRunnable:
        kind = self.make(brokers)

        def runnable(link: Link, counts: Counts, on_noted: Callable[[], None]) -> RunnableLink:
            if not isinstance(link, self.links):
                raise TypeError(f"link {link.id} is registered as another kind than {link.kind}")
            return kind.runnable(link, counts, on_noted)

        return runnable


KINDS: Final[Mapping[LinkKind, Registered[Any]]] = {LinkKind.EXCHANGE: Registered(ExchangeLink, ExchangeLinks)}


class Kinds:
    """One of each kind, for one agent."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self._runnable = {kind: registered.for_agent(brokers) for kind, registered in KINDS.items()}

    def runnable(self, link: Link, counts: Counts, on_noted: Callable[[], None]) -> RunnableLink:
        return self._runnable[link.kind](link, counts, on_noted)
