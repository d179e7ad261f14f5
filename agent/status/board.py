"""The one place that holds the state of every link; the runners of links write it, all others only read it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from agent.core.addresses.expiry import Expiry
from agent.core.addresses.uri import AmqpUri
from agent.core.export_event import Reason
from agent.core.links.lifecycle import LinkState, Status
from agent.core.model import Link, LinkKind, ShovelLink
from agent.core.status.acknowledgements import Acknowledgement
from agent.core.status.causes import FLOWING, LinkFacts, was_flowing
from agent.errors import Problem
from agent.status.changes import Feed, RecentTransitions, Transition
from agent.status.entry import MOVING, BoardEntry, Gauges, Meter, Totals
from agent.tasks import UnexpectedErrors

if TYPE_CHECKING:
    from agent.core.standby.status import StandbyStatus

MOST_DELETED: Final = 1_000
MOST_NAMES: Final = 10_000
THIS_CLUSTER: Final = "this cluster"  # where its name isn't known

Address = tuple[str, int]
OnTransition = Callable[[BoardEntry, LinkState | None], None]
"""Called immediately at every change of a link's status, with the previous state; a new link has none."""


@dataclass(frozen=True, slots=True)
class QuarantineDepth:
    """Messages that wait in the quarantines of all links; None while unknown, a lower bound unless exact. `unseen` were
    put where the agent could not look."""

    messages: int | None = None
    is_exact: bool = False
    unseen: int = 0


def address_of(uri: AmqpUri) -> Address:
    return uri.connect_host.lower(), uri.connect_port


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as operators know it: by its cluster's name where that is known, else by its address."""

    name: str
    is_known: bool  # by its cluster's name
    is_downstream: bool


@dataclass(slots=True)
class Clusters:
    """Names of clusters by address: a link that never connected learns the name from those that did. `downstream` are
    the addresses of the agent's own; the names at `most` addresses are remembered."""

    downstream: frozenset[Address] = frozenset()
    most: int = MOST_NAMES
    _names: dict[Address, str] = field(default_factory=dict)

    def learn(self, uri: AmqpUri, cluster: str) -> bool:
        """Store the name of a cluster; True if it is another one than before."""
        address = address_of(uri)
        before = self._names.pop(address, None)
        self._names[address] = cluster
        if len(self._names) > self.most:
            del self._names[next(iter(self._names))]
        return before != cluster

    def name_of(self, uris: Iterable[AmqpUri]) -> str | None:
        """The first name that is known for these addresses."""
        return next((name for uri in uris if (name := self._names.get(address_of(uri))) is not None), None)

    def is_downstream(self, uri: AmqpUri) -> bool:
        return uri.is_downstream_itself or address_of(uri) in self.downstream


@dataclass
class Board:
    """`clock` returns seconds since 1970, `owner` is this agent's name; `cluster` is known once it was read."""

    clock: Callable[[], float]
    owner: str
    monotonic: Callable[[], float] = time.monotonic
    version: str = ""
    group: str = ""
    public_url: str | None = None
    cluster: str | None = None
    clusters: Clusters = field(default_factory=Clusters)
    vhosts: frozenset[str] | None = None  # of the downstream; None if they can't be listed
    ready: bool = False
    unread: str = ""  # why the downstream can't be read, while it can't
    problems: tuple[str, ...] = ()  # errors that keep the latest definitions of a source from taking effect
    notes: tuple[str, ...] = ()  # remarks on the definitions in force, which stop nothing
    not_run: tuple[Problem, ...] = ()  # definitions that are valid and that the agent does nothing with
    refusals: int = 0
    reloaded_at: float = 0.0  # when all sources were last read and completely put in force
    expiries: tuple[Expiry, ...] = ()
    quarantine_depth: QuarantineDepth = QuarantineDepth()
    standby: StandbyStatus | None = None  # None where the cluster is to be no standby
    export_dropped: int = 0  # events that the status export could not keep
    errors: UnexpectedErrors = field(default_factory=UnexpectedErrors)  # of the agent's own tasks
    on_transition: list[OnTransition] = field(default_factory=list)
    transitions: RecentTransitions = field(default_factory=RecentTransitions)
    totals_of_removed: dict[tuple[LinkKind, str, str], Totals] = field(default_factory=dict)
    """The counts of links that were removed or replaced, by kind, vhost and upstream: sums never fall."""
    _entries: dict[str, BoardEntry] = field(default_factory=dict)
    _feeds: set[Feed] = field(default_factory=set)
    _deleted: dict[str, LinkFacts] = field(default_factory=dict)
    _slowing: set[str] = field(default_factory=set)
    """Links whose rate may not have fallen to zero yet."""

    def put(self, link: Link, state: LinkState, meter: Meter, gauges: Callable[[], Gauges]) -> None:
        """Adds a link, changes its definition, or takes it back while it was being removed."""
        standing = self._entries.get(link.id)
        self._deleted.pop(link.id, None)
        if standing is None:
            now = self.clock()
            entry = self._entries[link.id] = BoardEntry(link, state, now, meter, gauges, self.monotonic)
            entry.history.add_transition(now, state.status, entry.reason, state.error)
            self._report(entry, None)
        elif standing.link == link and standing.meter is meter:
            return
        else:
            if standing.meter is not meter:
                self._keep_counts(standing)
            standing.link, standing.meter, standing.gauges = link, meter, gauges
        self._notify(Feed.change, link.id)

    def changed(self, link_id: str, state: LinkState) -> None:
        entry = self._entries.get(link_id)
        if entry is None:
            return
        before = entry.state
        entry.change(state, self.clock())
        if state.status in MOVING and before.status not in MOVING:
            self._learn_names(entry.gauges().met)
        if state.status is not before.status:
            self._report(entry, before)
        if (state.status, state.error) != (before.status, before.error):
            self._notify(Feed.change, link_id)

    def _learn_names(self, met: Iterable[tuple[AmqpUri, str]]) -> None:
        """Remember the names of clusters; links at an address whose cluster has another name now are sent again."""
        renamed = {address_of(uri) for uri, cluster in met if self.clusters.learn(uri, cluster)}
        if renamed and self._feeds:
            for entry in self:
                if not renamed.isdisjoint(map(address_of, (*entry.link.uris, *_destinations(entry.link)))):
                    self._notify(Feed.change, entry.link.id)

    def _report(self, entry: BoardEntry, before: LinkState | None) -> None:
        self._add_transition(entry, entry.state.status, before.status if before else None, entry.reason)
        for call in self.on_transition:
            call(entry, before)

    def moved(self, link_id: str) -> None:
        """The link's counters changed since the last round."""
        entry = self._entries.get(link_id)
        if entry is not None:
            entry.move(self.clock())
            self._slowing.add(link_id)
            # The link's error shows the time left until the removal, so all fields of the link are sent.
            # So is what a link that works has to say.
            is_new = entry.state.status is Status.REMOVING or entry.has_new_note()
            self._notify(Feed.change if is_new else Feed.move, link_id)

    def gone(self, link_id: str) -> None:
        entry = self._entries.pop(link_id, None)
        if entry is not None:
            self._keep_counts(entry)
            self._add_transition(entry, None, entry.state.status, Reason.REMOVED)
            self._notify(Feed.remove, link_id)

    def object_deleted(self, link_id: str) -> None:
        """An exchange or queue that is deleted while messages flow is trouble, although nothing is left that fails."""
        entry, now = self._entries.get(link_id), self.clock()
        if entry is None or not was_flowing(entry.flowed_at(now), now):
            return
        link, rate = entry.link, entry.history.flow(entry.sample_at(now)).rate
        carried = f"it carried {rate:,.1f} messages a second" if rate else "messages came within the hour"
        while len(self._deleted) >= MOST_DELETED:
            self._deleted.pop(next(iter(self._deleted)))
        self._deleted[link_id] = LinkFacts(
            id=link_id,
            status=Status.REMOVING,
            failure=None,
            error=f"{link.kind} {link.name!r} in vhost {link.vhost!r} was deleted: its link from {link.upstream!r} "
            f"ends, and {carried}",
            upstream=link.upstream,
            since=now,
            last_confirm=entry.flowed_at(now),
            waiting=0,
            vhost=link.vhost,
            name=link.name,
            deleted=link.kind,
        )

    def deleted(self) -> list[LinkFacts]:
        """Links of deleted exchanges and queues, of the last hour; without those that were to be forgotten."""
        now = self.clock()
        for link_id, each in self._deleted.items():
            if each.acknowledged is not None and each.acknowledged.is_over(now):
                self.acknowledge({link_id: None})
        return [each for each in self._deleted.values() if now - each.since < FLOWING]

    def acknowledge(self, links: Mapping[str, Acknowledgement | None]) -> None:
        """Acknowledge the trouble of links; None takes it back."""
        for link_id, known in links.items():
            if link_id in self._deleted:
                self._deleted[link_id] = replace(self._deleted[link_id], acknowledged=known)
            elif link_id in self._entries:
                self._entries[link_id].acknowledge(known)

    def acknowledged(self, link_id: str) -> Acknowledgement | None:
        return self._entries[link_id].acknowledged(self.clock()) if link_id in self._entries else None

    def forget(self, link_id: str) -> bool:
        return self._deleted.pop(link_id, None) is not None

    def _keep_counts(self, entry: BoardEntry) -> None:
        of_upstream = entry.link.kind, entry.link.vhost, entry.link.upstream
        if of_upstream not in self.totals_of_removed:
            self.totals_of_removed[of_upstream] = Totals(entry.meter.transfer.bounds, entry.meter.binding_sync.bounds)
        self.totals_of_removed[of_upstream].add(entry.meter)

    def _add_transition(
        self, entry: BoardEntry, status: Status | None, previous: Status | None, reason: Reason
    ) -> None:
        error = entry.state.error if status is not None else ""
        cluster = entry.gauges().upstream_cluster
        self.transitions.add(Transition(self.clock(), entry.link, cluster, status, previous, reason, error))

    def tick(self) -> None:
        """End a round: all links that changed were reported. The rate of one that stands still falls for seconds."""
        now = self.clock()
        for link_id in tuple(self._slowing):
            if link_id in self._entries:
                self._notify(Feed.move, link_id)
            if link_id not in self._entries or not self._entries[link_id].rate(now):
                self._slowing.discard(link_id)
        for feed in self._feeds:
            feed.flush()

    @property
    def readers(self) -> int:
        """The number of readers of changes."""
        return len(self._feeds)

    def close(self) -> None:
        """Ends all feeds."""
        for feed in self._feeds:
            feed.end()

    @contextmanager
    def feed(self) -> Iterator[Feed]:
        """Changes from now on, for one reader."""
        feed = Feed()
        self._feeds.add(feed)
        try:
            yield feed
        finally:
            self._feeds.discard(feed)

    def _notify(self, how: Callable[[Feed, str], None], link_id: str) -> None:
        for feed in self._feeds:
            how(feed, link_id)

    def __iter__(self) -> Iterator[BoardEntry]:
        return iter(tuple(self._entries.values()))

    def __getitem__(self, link_id: str) -> BoardEntry:
        return self._entries[link_id]

    def __contains__(self, link_id: object) -> bool:
        return link_id in self._entries

    @property
    def downstream_name(self) -> str:
        return self.cluster or THIS_CLUSTER

    def source_of(self, link: Link, gauges: Gauges) -> Broker:
        """The broker that the link is connected to, or was last."""
        found = self._broker_at(_known(gauges.uri, link.uris), gauges.upstream_cluster)
        return found or Broker(link.upstream, is_known=False, is_downstream=False)

    def destination_of(self, link: Link, gauges: Gauges) -> Broker:
        """The broker that messages go to: the downstream, but of some shovels."""
        connected = gauges.destination if isinstance(link, ShovelLink) else None
        return self._broker_at(_known(connected, _destinations(link)), None) or self._downstream()

    def _downstream(self) -> Broker:
        return Broker(self.downstream_name, is_known=self.cluster is not None, is_downstream=True)

    def _broker_at(self, uris: tuple[AmqpUri, ...], reported: str | None) -> Broker | None:
        """The broker at these addresses; those whose cluster is known count first."""
        if not uris:
            return None
        known = self.clusters.name_of(uris) or reported
        if self.clusters.is_downstream(uris[0]) or (known is not None and known == self.cluster):
            return self._downstream()
        address = f"{uris[0].connect_host}:{uris[0].connect_port}"
        return Broker(known or address, is_known=known is not None, is_downstream=False)


def _destinations(link: Link) -> tuple[AmqpUri, ...]:
    return link.shovel.destination_uris if isinstance(link, ShovelLink) else ()


def _known(connected: AmqpUri | None, defined: tuple[AmqpUri, ...]) -> tuple[AmqpUri, ...]:
    return defined if connected is None else (connected,)
