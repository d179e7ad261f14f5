"""The one place that holds the state of every link; the runners of links write it, all others only read it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent.core.addresses.expiry import Expiry
from agent.core.addresses.uri import AmqpUri
from agent.core.export_event import Reason
from agent.core.links.critical import NO_LAG, LagDescription, describe_lag, seconds_behind
from agent.core.links.lifecycle import LinkState, Pause, Status
from agent.core.links.reasons import reason_of, word_of
from agent.core.links.reconcile import Known
from agent.core.links.upstream_account import NOTHING, Compared
from agent.core.model import ExchangeLink, Link, LinkKind, LinkSettings, QueueLink, ShovelLink
from agent.core.status.acknowledgements import Acknowledgement
from agent.core.status.causes import DEGRADED, DOWN, FLOWING, LinkFacts, began, was_flowing
from agent.errors import Failure, Side
from agent.status.clusters import Broker, Clusters, address_of
from agent.status.feed import Feed
from agent.status.history import History, Point, Range
from agent.status.meter import Meter, Totals
from agent.status.pace import Pace
from agent.status.recent import Recent
from agent.status.times import rfc3339
from agent.status.troubles import STEADY, Troubles
from agent.tasks import UnexpectedErrors


@dataclass(slots=True)
class Gauges:
    """The current values of a link, without history; None means unknown."""

    in_flight: int = 0
    unsettled: int = 0  # those, and what waits to be published again, set aside or given back
    bindings: int = 0
    prefetch: int = 0
    backlog: int | None = None
    backlog_is_exact: bool = True  # otherwise more may wait
    oldest_in_flight: float = 0.0  # for how many seconds it has waited for its confirm
    oldest_refused: float = 0.0  # the same of what the downstream refused and is tried again
    lag: float | None = None  # seconds that the last probe took
    last_probe: float | None = None  # when it arrived, in seconds since 1970
    upstream_cluster: str | None = None
    uri: AmqpUri | None = None  # the one of its endpoints that it is connected to, or was last
    known: Known | None = None  # what it has bound upstream
    note: str = ""
    trouble: str = ""  # of it, why messages don't get through
    is_refused: bool = False  # because the downstream refused some, which wait
    remaining: int | None = None  # messages until it is finished, where their number is limited
    destination: AmqpUri | None = None  # where its messages go to, while it is connected
    met: tuple[tuple[AmqpUri, str], ...] = ()  # brokers that it has connected to, and their clusters' names
    owner: str | None = None  # the other agent of the group that runs it, where it is known
    runs_here: bool = True  # rather than in another agent of the group
    upstream: Compared = NOTHING  # what its queue's broker counted, as far as that could be compared
    removal: str = ""  # of a link that is no longer defined: when its upstream objects are removed

    @property
    def oldest_unconfirmed(self) -> float:
        return max(self.oldest_in_flight, self.oldest_refused)


@dataclass(frozen=True, slots=True)
class InQuarantine:
    """What waits beside the sources of all links; None while that isn't known, a lower bound where it isn't exact.
    `unseen` is how many were put where nobody could look."""

    messages: int | None = None
    is_exact: bool = False
    unseen: int = 0


@dataclass(slots=True)
class Entry:
    link: Link
    state: LinkState
    since: float
    meter: Meter
    gauges: Callable[[], Gauges]
    monotonic: Callable[[], float]
    failures: Counter[tuple[Side, str]] = field(default_factory=Counter)
    last_confirm: float | None = None
    history: History = field(default_factory=History)
    pace: Pace = field(init=False)
    ran_until: float | None = None  # when its last run that was more than an attempt ended
    reason: Reason = Reason.APPEARED  # of its status and its error now
    changed_for: Reason = Reason.APPEARED  # that of the last change of its status
    troubles: Troubles = field(default_factory=Troubles)
    backlog_last: int | None = None  # when it was last known
    backlog_last_at: float = 0.0
    behind: float | None = None  # seconds, where `lag-critical` asks for them
    critical_since: float | None = None  # since when it has been further behind than `lag-critical` allows
    in_time_since: float = 0.0  # since when it isn't any more
    _empty_at: float = 0.0  # when nothing waited, as far as is known
    _confirmed: int = 0
    _blocked_before: float = 0.0
    _blocked_at: float = 0.0
    lag: LagDescription = NO_LAG  # how far behind it is and how that goes on, while that is critical
    _note: str = ""
    _acknowledged: Acknowledgement | None = None

    def __post_init__(self) -> None:
        self.pace = Pace(self.since, self.meter.forwarded)

    @property
    def reconnects(self) -> int:
        """How often it lost its connections; repeated attempts aren't counted."""
        return self.failures.total()

    @property
    def blocked_seconds(self) -> float:
        """Total time that it was blocked, independent of changes of the wall clock."""
        lasting = self.monotonic() - self._blocked_at if self.state.status is Status.BLOCKED else 0.0
        return self._blocked_before + lasting

    def change(self, state: LinkState, now: float) -> None:
        reason, worked = reason_of(self.state, state), False
        self.note_backlog(now)
        self.acknowledged(now)  # it ends with a run that was long enough
        if self.state.status is Status.STANDBY and state.status is not Status.STANDBY:
            self.backlog_last, self._empty_at = None, now
        if state.status is not self.state.status:
            worked = self.state.status is Status.RUNNING and self._has_worked(now)
            if worked:
                self.ran_until = now
            self._blocked_before, self._blocked_at = self.blocked_seconds, self.monotonic()
            self.since, self.changed_for = now, reason
        if _turns(self.state, state):
            self.reason = reason
            self.troubles.turn(now, state.status, state.failure, state.error, worked=worked)
        if state.broken is not None and self.state.broken is None:
            failure = state.broken.failure
            self.failures[failure.side or Side.UPSTREAM, word_of(failure)] += 1
        if (state.status, state.error) != (self.state.status, self.state.error):
            self.history.turn(now, state.status, reason, state.error)
        self.state = state

    def acknowledge(self, known: Acknowledgement | None) -> None:
        self._acknowledged = known

    def acknowledged(self, now: float) -> Acknowledgement | None:
        """That somebody knows of its trouble, until the time for that is over or the link has run well for a minute."""
        known = self._acknowledged
        since = max(self.since, self.in_time_since)
        is_well = self.state.status is Status.RUNNING and self.critical_since is None and now - since >= STEADY
        if known is not None and (known.is_over(now) or is_well):
            self._acknowledged = None
        return self._acknowledged

    def _has_worked(self, now: float) -> bool:
        """Whether its present run is more than an attempt: a link that is broken may open again and again."""
        is_first = self.ran_until is None
        return is_first or now - self.since >= STEADY or (self.last_confirm or 0.0) >= self.since

    def move(self, now: float) -> None:
        if self.meter.forwarded != self._confirmed:
            self._confirmed = self.meter.forwarded
            self.last_confirm = now
        self.pace.note(now, self.meter.forwarded)
        self.note_backlog(now)
        self.note_lag(now)
        if self.history.is_due(now):
            self.history.sample(self.look(now))

    def note_backlog(self, now: float) -> None:
        """Remembers how many messages wait, for when that can't be known any more."""
        backlog = self.gauges().backlog
        if backlog is not None:
            self.backlog_last, self.backlog_last_at = backlog, now
        if backlog == 0 or not self._empty_at:
            self._empty_at = now

    def note_lag(self, now: float) -> None:
        """A link on which nothing moves has to be looked at, too: whoever reads its lag calls this before."""
        self.lag = NO_LAG
        limit = self.link.settings.lag_critical
        if limit is None:
            self.behind = self.critical_since = None
            return
        if self.state.status is Status.STANDBY:  # something else serves it, and knows what waits
            self.behind = self.critical_since = None
            self._empty_at = now
            return
        self.note_backlog(now)
        gauges = self.gauges()
        backlog = self.backlog_last if gauges.backlog is None else gauges.backlog
        flow = self.history.flow(self.look(now))
        if limit.seconds is not None:
            stuck = now - max(self._empty_at, self.last_confirm or 0.0)
            settings = self.link.settings
            interval = settings.probe if isinstance(settings, LinkSettings) else None
            self.behind = seconds_behind(backlog, flow.rate, stuck=stuck, probe=gauges.lag, interval=interval)
        if not limit.is_reached(backlog=backlog, behind=self.behind):
            if self.critical_since is not None:
                self.critical_since, self.in_time_since = None, now
            return
        if self.critical_since is None:
            self.critical_since = now
        if self.state.status is Status.RUNNING:
            held = gauges.unsettled, gauges.prefetch
            wanted = self.link.settings.prefetch_count or 0  # 0 is sized by the agent, as what isn't given
            is_auto = not 0 < wanted <= gauges.prefetch  # or it is smaller for another reason than the definition
            self.lag = describe_lag(limit, backlog=backlog, behind=self.behind, flow=flow, held=held, is_auto=is_auto)

    @property
    def lag_is_critical(self) -> bool | None:
        """When its lag was last noted; None without `lag-critical`."""
        return None if self.link.settings.lag_critical is None else self.critical_since is not None

    def rate(self, now: float) -> float:
        """Messages in a second, over the last seconds; 0 of a link that can't publish."""
        is_blocked = any(block.side is Side.DOWNSTREAM for block in self.state.blocked)
        can_publish = self.state.status in _MOVING and not is_blocked
        return self.pace.rate(now, self.meter.forwarded) if can_publish else 0.0

    def flowed_at(self, now: float) -> float | None:
        """When it last moved a message; what has moved since the last round is noted in the next."""
        return self.last_confirm if self.meter.forwarded == self._confirmed else now

    def is_incident(self, now: float) -> bool:
        """Whether messages flowed shortly before and don't now, or too slowly."""
        flowed_at = self.flowed_at(now)
        if self.state.status in DOWN | DEGRADED:
            return was_flowing(flowed_at, began(self.since, self.ran_until))
        is_behind = self.critical_since is not None and self.state.status is Status.RUNNING
        return is_behind and was_flowing(flowed_at, self.critical_since or 0.0)

    def has_new_note(self) -> bool:
        """Whether its note is another one than when this was asked last."""
        now = f"{self.gauges().note}{self.critical_since or ''}"
        before, self._note = self._note, now
        return now != before

    def look(self, now: float) -> Point:
        gauges = self.gauges()
        return Point(
            now,
            self.meter.forwarded,
            self.meter.bytes,
            gauges.in_flight,
            gauges.backlog,
            gauges.oldest_unconfirmed,
        )


def _turns(before: LinkState, after: LinkState) -> bool:
    """A link that is down may be so for another reason each time it tries."""
    return (after.status, after.error, after.broken) != (before.status, before.error, before.broken)


MOST_DELETED: Final = 1_000
THIS_CLUSTER: Final = "this cluster"  # where its name isn't known
_MOVING: Final = frozenset({Status.RUNNING, Status.BLOCKED, Status.STALLED})  # a block upstream stops no message

OnTransition = Callable[[Entry, LinkState | None], None]
"""Called immediately at every change of a link's status, with the previous state; a new link has none."""


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
    not_run: tuple[str, ...] = ()  # definitions that are valid and that the agent does nothing with
    refusals: int = 0
    reloaded_at: float = 0.0  # when all sources were last read and completely put in force
    expiries: tuple[Expiry, ...] = ()
    in_quarantine: InQuarantine = InQuarantine()
    export_dropped: int = 0  # events that the status export could not keep
    errors: UnexpectedErrors = field(default_factory=UnexpectedErrors)  # of the agent's own tasks
    on_transition: list[OnTransition] = field(default_factory=list)
    recent: Recent = field(default_factory=Recent)
    left: dict[tuple[LinkKind, str, str], Totals] = field(default_factory=dict)
    """What links have counted that were removed since or made anew, by kind, vhost and upstream: sums never fall."""
    _entries: dict[str, Entry] = field(default_factory=dict)
    _feeds: set[Feed] = field(default_factory=set)
    _deleted: dict[str, LinkFacts] = field(default_factory=dict)
    _paced: set[str] = field(default_factory=set)
    """Links whose rate may not have fallen to zero yet."""

    def put(self, link: Link, state: LinkState, meter: Meter, gauges: Callable[[], Gauges]) -> None:
        """Adds a link, changes its definition, or takes it back while it was being removed."""
        standing = self._entries.get(link.id)
        self._deleted.pop(link.id, None)
        if standing is None:
            now = self.clock()
            entry = self._entries[link.id] = Entry(link, state, now, meter, gauges, self.monotonic)
            entry.history.turn(now, state.status, entry.reason, state.error)
            self._pass_on(entry, None)
        elif standing.link == link and standing.meter is meter:
            return
        else:
            if standing.meter is not meter:
                self._keep_counts(standing)
            standing.link, standing.meter, standing.gauges = link, meter, gauges
        self._tell(Feed.change, link.id)

    def changed(self, link_id: str, state: LinkState) -> None:
        entry = self._entries.get(link_id)
        if entry is None:
            return
        before = entry.state
        entry.change(state, self.clock())
        if state.status in _MOVING and before.status not in _MOVING:
            self._learn(entry.gauges().met)
        if state.status is not before.status:
            self._pass_on(entry, before)
        if (state.status, state.error) != (before.status, before.error):
            self._tell(Feed.change, link_id)

    def _learn(self, met: Iterable[tuple[AmqpUri, str]]) -> None:
        """All links at an address whose cluster has another name now are sent again."""
        renamed = {address_of(uri) for uri, cluster in met if self.clusters.learn(uri, cluster)}
        if renamed and self._feeds:
            for entry in self:
                if not renamed.isdisjoint(map(address_of, (*entry.link.uris, *_destinations(entry.link)))):
                    self._tell(Feed.change, entry.link.id)

    def _pass_on(self, entry: Entry, before: LinkState | None) -> None:
        self._note(entry, entry.state.status, before.status if before else None, entry.reason)
        for told in self.on_transition:
            told(entry, before)

    def moved(self, link_id: str) -> None:
        """The link's counters changed since the last round."""
        entry = self._entries.get(link_id)
        if entry is not None:
            entry.move(self.clock())
            self._paced.add(link_id)
            # The link's error shows the time left until the removal, so all fields of the link are sent.
            # So is what a link that works has to say.
            is_new = entry.state.status is Status.REMOVING or entry.has_new_note()
            self._tell(Feed.change if is_new else Feed.move, link_id)

    def gone(self, link_id: str) -> None:
        entry = self._entries.pop(link_id, None)
        if entry is not None:
            self._keep_counts(entry)
            self._note(entry, None, entry.state.status, Reason.REMOVED)
            self._tell(Feed.lose, link_id)

    def object_deleted(self, link_id: str) -> None:
        """A link whose exchange or queue goes while messages flow is trouble, although nothing is left that fails."""
        entry, now = self._entries.get(link_id), self.clock()
        if entry is None or not was_flowing(entry.flowed_at(now), now):
            return
        link, rate = entry.link, entry.history.flow(entry.look(now)).rate
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
        """Those of the last hour that nobody has asked to forget."""
        now = self.clock()
        for link_id, each in self._deleted.items():
            if each.acknowledged is not None and each.acknowledged.is_over(now):
                self.acknowledge({link_id: None})
        return [each for each in self._deleted.values() if now - each.since < FLOWING]

    def acknowledge(self, links: Mapping[str, Acknowledgement | None]) -> None:
        """Somebody knows of their trouble, or takes that back."""
        for link_id, known in links.items():
            if link_id in self._deleted:
                self._deleted[link_id] = replace(self._deleted[link_id], acknowledged=known)
            elif link_id in self._entries:
                self._entries[link_id].acknowledge(known)

    def acknowledged(self, link_id: str) -> Acknowledgement | None:
        return self._entries[link_id].acknowledged(self.clock()) if link_id in self._entries else None

    def forget(self, link_id: str) -> bool:
        return self._deleted.pop(link_id, None) is not None

    def _keep_counts(self, entry: Entry) -> None:
        of_upstream = entry.link.kind, entry.link.vhost, entry.link.upstream
        if of_upstream not in self.left:
            self.left[of_upstream] = Totals(entry.meter.transfer.bounds, entry.meter.binding_sync.bounds)
        self.left[of_upstream].add(entry.meter)

    def _note(self, entry: Entry, status: Status | None, previous: Status | None, reason: Reason) -> None:
        cluster = entry.gauges().upstream_cluster
        error = entry.state.error if status is not None else ""
        self.recent.note(
            self.clock(), entry.link, cluster=cluster, status=status, previous=previous, reason=reason, error=error
        )

    def tick(self) -> None:
        """All links that changed in this round were reported. The rate of one that stands still falls for seconds."""
        now = self.clock()
        for link_id in tuple(self._paced):
            if link_id in self._entries:
                self._tell(Feed.move, link_id)
            if link_id not in self._entries or not self._entries[link_id].rate(now):
                self._paced.discard(link_id)
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

    def _tell(self, how: Callable[[Feed, str], None], link_id: str) -> None:
        for feed in self._feeds:
            how(feed, link_id)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, link_id: str) -> Entry:
        return self._entries[link_id]

    def __contains__(self, link_id: object) -> bool:
        return link_id in self._entries

    def overview(self) -> dict[str, Any]:
        """The agent itself, as `/api/overview` shows it."""
        found = Counter(entry.state.status for entry in self)
        return {
            "agent": self.owner,
            "group": self.group,
            "cluster": self.cluster,
            "version": self.version,
            "ready": self.ready,
            "unread": self.unread or None,
            "problems": [*self.problems, *self.errors.problems],
            "notes": list(self.notes),
            "not_run": list(self.not_run),
            "reload_success": not self.problems,
            "reloaded": rfc3339(self.reloaded_at) if self.reloaded_at else None,
            "now": rfc3339(self.clock()),
            "links": {status: found[status] for status in Status},
            "quarantine": {
                "messages": self.in_quarantine.messages,
                "is_exact": self.in_quarantine.is_exact,
                "unseen": self.in_quarantine.unseen,
                "quarantined": sum(sum(entry.meter.quarantined.values()) for entry in self),
            },
        }

    def story(self, entry: Entry, span: Range = Range.QUARTER) -> dict[str, Any]:
        """The recent history of a link, up to this moment."""
        now = self.clock()
        return entry.history.view(entry.look(now), span)

    def view(self, entry: Entry) -> dict[str, Any]:
        """One link as `/api/links` shows it."""
        link, state, gauges = entry.link, entry.state, entry.gauges()
        entry.note_lag(self.clock())
        source, destination = source_of(self, link, gauges), destination_of(self, link, gauges)
        return {
            "id": link.id,
            "kind": link.kind,
            "vhost": link.vhost,
            **ends(link, gauges),
            "upstream": link.upstream,
            "upstream_cluster": source.name if source.is_known else None,
            "destination_cluster": destination.name if destination.is_known else None,
            "uri": shown_uri(link, gauges),
            "policy": link.policy,
            "status": state.status,
            "error": gauges.removal or state.error or _remarks(entry, gauges),
            "failure": shown_failure(state.failure, source=source, destination=destination),
            "since": rfc3339(entry.since),
            "owner": self.owner if gauges.runs_here and state.status is not Status.STANDBY else gauges.owner,
            **self._sample(entry, gauges),
            "reconnects": entry.reconnects,
            "reason": entry.reason,
            "backlog_last": entry.backlog_last if gauges.backlog is None else gauges.backlog,
            "backlog_last_at": self._backlog_at(entry, gauges),
            "paused": _paused(state.pause) if state.paused else None,
            **_lag(entry),
        }

    def sample(self, entry: Entry) -> dict[str, Any]:
        """The numbers of a link that change while it runs."""
        gauges, lag = entry.gauges(), {}
        if entry.lag.text:
            lag = {"error": _remarks(entry, gauges), "behind_seconds": _lag(entry)["behind_seconds"]}
        return {"id": entry.link.id, **self._sample(entry, gauges), **lag}

    def _sample(self, entry: Entry, gauges: Gauges) -> dict[str, Any]:
        now = self.clock()
        return {
            **_counts(entry, gauges),
            "rate": round(entry.rate(now), 2),
            "incident": entry.is_incident(now),
        }

    def _backlog_at(self, entry: Entry, gauges: Gauges) -> str | None:
        if gauges.backlog is not None:
            return rfc3339(self.clock())
        return None if entry.backlog_last is None else rfc3339(entry.backlog_last_at)


def _counts(entry: Entry, gauges: Gauges) -> dict[str, Any]:
    meter = entry.meter
    return {
        "forwarded": meter.forwarded,
        "bytes": meter.bytes,
        "redelivered": meter.redelivered,
        "dropped": sum(meter.dropped.values()),
        "quarantined": sum(meter.quarantined.values()),
        "returned": meter.returned,
        "in_flight": gauges.in_flight,
        "backlog": gauges.backlog,
        "backlog_is_exact": gauges.backlog is not None and gauges.backlog_is_exact,
        "oldest_unconfirmed_seconds": round(gauges.oldest_unconfirmed, 3),
        "lag_seconds": None if gauges.lag is None else round(gauges.lag, 3),
        "last_probe": None if gauges.last_probe is None else rfc3339(gauges.last_probe),
        "prefetch": gauges.prefetch,
        "bindings": gauges.bindings,
        "last_confirm": None if entry.last_confirm is None else rfc3339(entry.last_confirm),
    }


def _remarks(entry: Entry, gauges: Gauges) -> str | None:
    """On a link that has no error."""
    return "; ".join(filter(None, (entry.lag.text, gauges.note))) or None


def _lag(entry: Entry) -> dict[str, Any]:
    limit, since = entry.link.settings.lag_critical, entry.critical_since
    return {
        "lag_critical": None if limit is None else {"seconds": limit.seconds, "messages": limit.messages},
        "behind_seconds": None if entry.behind is None else round(entry.behind, 3),
        "critical_since": None if since is None else rfc3339(since),
    }


def shown_failure(failure: Failure | None, *, source: Broker, destination: Broker) -> dict[str, str | None] | None:
    """The facts of what keeps a link from moving messages; a fact that isn't known is null."""
    if failure is None:
        return None
    broker = destination if failure.side is Side.DOWNSTREAM else source
    facts = {
        "kind": failure.kind,
        "side": failure.side,
        "broker": broker.name,
        "user": failure.user,
        "vhost": failure.vhost,
        "object": failure.object,
        "object_type": failure.object_type,
        "permission": failure.permission,
    }
    return {name: fact or None for name, fact in facts.items()}


def _paused(pause: Pause) -> dict[str, Any]:
    return {"by": pause.by or None, "at": rfc3339(pause.at) if pause.at else None, "reason": pause.reason or None}


def shown_uri(link: Link, gauges: Gauges) -> str | None:
    """The endpoint that the link is connected to; the first one until then."""
    uri = gauges.uri or next(iter(link.uris), None)
    return None if uri is None else uri.safe


def shown_destination(link: ShovelLink, gauges: Gauges) -> str:
    """The endpoint that a shovel's messages go to; the first one until it is connected."""
    uri = gauges.destination or next(iter(link.shovel.destination_uris), None)
    return "" if uri is None else uri.safe


def ends(link: Link, gauges: Gauges) -> Mapping[str, str]:
    match link:
        case ExchangeLink():
            return {"exchange": link.name, "upstream_exchange": link.remote_name}
        case QueueLink():
            return {"queue": link.name, "upstream_queue": link.remote_name}
        case ShovelLink():
            return {
                "name": link.name,
                "source": str(link.shovel.source),
                "destination": str(link.shovel.destination),
                "destination_uri": shown_destination(link, gauges),
            }


def name_of_downstream(board: Board) -> str:
    return board.cluster or THIS_CLUSTER


def source_of(board: Board, link: Link, gauges: Gauges) -> Broker:
    """The broker that it is connected to, or was last."""
    found = _broker(board, _known(gauges.uri, link.uris), gauges.upstream_cluster)
    return found or Broker(link.upstream, is_known=False, is_downstream=False)


def destination_of(board: Board, link: Link, gauges: Gauges) -> Broker:
    """A link that federates goes to the downstream."""
    connected = gauges.destination if isinstance(link, ShovelLink) else None
    return _broker(board, _known(connected, _destinations(link)), None) or _downstream(board)


def _destinations(link: Link) -> tuple[AmqpUri, ...]:
    return link.shovel.destination_uris if isinstance(link, ShovelLink) else ()


def _downstream(board: Board) -> Broker:
    return Broker(name_of_downstream(board), is_known=board.cluster is not None, is_downstream=True)


def _known(connected: AmqpUri | None, defined: tuple[AmqpUri, ...]) -> tuple[AmqpUri, ...]:
    return defined if connected is None else (connected,)


def _broker(board: Board, uris: tuple[AmqpUri, ...], reported: str | None) -> Broker | None:
    """Of several addresses without a connection, those whose cluster is known count first."""
    if not uris:
        return None
    known = board.clusters.name_of(uris) or reported
    if board.clusters.is_downstream(uris[0]) or (known is not None and known == board.cluster):
        return _downstream(board)
    address = f"{uris[0].connect_host}:{uris[0].connect_port}"
    return Broker(known or address, is_known=known is not None, is_downstream=False)
