"""Exchange links as the runtime runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.amqp.connect import Connection
from agent.amqp.data.delivery import Destination
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.data.splice import Counts
from agent.amqp.questions import count_consumers
from agent.core.addresses.uri import AmqpUri
from agent.core.links.reconcile import Known, upstream_queue_name
from agent.core.links.restarts import leads_elsewhere
from agent.core.links.suspicion import Watch
from agent.core.model import Binding, ExchangeLink
from agent.core.rules import names
from agent.errors import BrokerError
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.ends import Ends
from agent.links.exchange.lingering import Lingering
from agent.links.exchange.lookout import Lookouts
from agent.links.exchange.plugin_type import PluginTypes
from agent.links.exchange.removal import Removal
from agent.links.exchange.session import ExchangeSession, Memory, destination_of, header_of, route_of


@dataclass
class ExchangeLinks:
    """What exchange links share: what was found out about upstream brokers, and who looks at what exists there."""

    brokers: Brokers
    plugin_types: PluginTypes = field(default_factory=PluginTypes)
    lookouts: Lookouts = field(init=False)

    def __post_init__(self) -> None:
        self.lookouts = Lookouts(self.brokers.errors)

    def ends(self, link: ExchangeLink) -> Ends:
        return self.brokers.federation_ends(link)

    def runnable(self, link: ExchangeLink, counts: Counts, on_noted: Callable[[], None]) -> RunnableExchangeLink:
        return RunnableExchangeLink(link, self, counts, on_noted)

    def destination(self, link: ExchangeLink) -> Destination:
        return destination_of(link)

    def rewriter(self, link: ExchangeLink, source: Connection, destination: Connection) -> Rewriter:  # noqa: ARG002 - it depends on the source alone
        return header_of(link, source, route_of(link, source, self.brokers.cluster))


class RunnableExchangeLink:
    remaining = None

    def __init__(self, link: ExchangeLink, shared: ExchangeLinks, counts: Counts, on_noted: Callable[[], None]) -> None:
        self.link = link
        self._shared = shared
        self._counts = counts
        self._on_noted = on_noted
        self.memory = Memory()

    @property
    def bound(self) -> int:
        return len(self.memory.built.bound)

    @property
    def known(self) -> Known | None:
        return self.memory.built.known

    @property
    def notes(self) -> str:
        return self.memory.built.notes

    @property
    def uri(self) -> AmqpUri | None:
        return self.memory.uri

    @property
    def upstream_cluster(self) -> str | None:
        return self.memory.upstream_cluster

    def inherit(self, former: object) -> None:
        """What was built stays known; what of it no longer fits is replaced."""
        if not isinstance(former, RunnableExchangeLink):
            return
        if not leads_elsewhere(map(str, former.link.uris), map(str, self.link.uris)):
            self.memory.built = former.memory.built

    def was_served_by_another(self) -> None:
        """The internal exchange may be another one of the same name, with other bindings or none."""
        self.memory.built.letter = None
        self.memory.built.may_have_rival = True

    def is_suspected(self, now: float) -> bool:
        return self.memory.path.suspicion.watch(now) is not Watch.OFF

    def session(
        self, connections: Connections, bindings: Callable[[], frozenset[Binding]], *, apart: bool
    ) -> ExchangeSession:
        return ExchangeSession(
            self.link,
            connections=connections,
            bindings=bindings,
            apart=apart,
            counts=self._counts,
            memory=self.memory,
            brokers=self._shared.brokers,
            plugin_types=self._shared.plugin_types,
            lookouts=self._shared.lookouts,
            on_noted=self._on_noted,
        )

    async def is_free(self, queue: str) -> bool:
        brokers = self._shared.brokers
        async with await brokers.control(brokers.federation_ends(self.link).source) as control:
            return not await count_consumers(control.connection, queue)

    def waits_in(self, vhost: str) -> str | None:
        queue = upstream_queue_name(self.link, vhost, self._shared.brokers.cluster)
        return None if names.are_too_long(queue) else queue

    def removing(self, *, cluster: str, since: float) -> Lingering:
        return Lingering(self.link, self._shared.brokers, cluster=cluster, since=since)

    async def remove(self, *, cluster: str, messages: bool, still: Callable[[], bool]) -> BrokerError | None:
        removal = Removal(
            self.link,
            self._shared.brokers,
            cluster=cluster,
            messages=messages,
            stands_otherwise=bool(self.memory.built.note),
        )
        return await removal.run(still)
