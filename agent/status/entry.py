"""One link on the board: its state, its numbers and its history.

The runner of a link writes them, through the board; views, metrics and the export read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from agent.core.addresses.uri import AmqpUri
from agent.core.export_event import Reason
from agent.core.links.lag import NO_LAG, Histogram, LagDescription, describe_lag, seconds_behind
from agent.core.links.lifecycle import LinkState, Status
from agent.core.links.reasons import reason_of, word_of
from agent.core.links.upstream_account import NOTHING, Compared
from agent.core.links.upstream_steps import Known
from agent.core.model import Link, LinkSettings
from agent.core.status.acknowledgements import Acknowledgement
from agent.core.status.causes import DEGRADED, DOWN, began, was_flowing
from agent.errors import Side
from agent.status.history import History, LinkSample, MessageRate
from agent.status.outages import STEADY, OutageTracker

MOVING: Final = frozenset({Status.RUNNING, Status.BLOCKED, Status.STALLED})  # a block upstream stops no message


class Meter(Protocol):
    """The counters of a running link; read while it runs."""

    forwarded: int
    bytes: int
    redelivered: int
    returned: int
    taken: int
    given_back: int
    dropped: dict[str, int]
    quarantined: dict[str, int]
    converted_with_loss: dict[str, int]

    @property
    def transfer(self) -> Histogram:
        """Seconds from delivery to confirm."""

    @property
    def binding_sync(self) -> Histogram:
        """Seconds from a change of bindings until it took effect upstream."""


class Totals:
    """The counters of links that are gone, added up."""

    def __init__(self, transfer: Sequence[float], binding_sync: Sequence[float]) -> None:
        """Counters at zero, with these bounds of the histograms."""
        self.forwarded = self.bytes = self.redelivered = self.returned = self.taken = self.given_back = 0
        self.dropped: dict[str, int] = Counter()
        self.quarantined: dict[str, int] = Counter()
        self.converted_with_loss: dict[str, int] = Counter()
        self.transfer, self.binding_sync = Histogram(transfer), Histogram(binding_sync)

    def add(self, meter: Meter) -> None:
        self.forwarded += meter.forwarded
        self.bytes += meter.bytes
        self.redelivered += meter.redelivered
        self.returned += meter.returned
        self.taken += meter.taken
        self.given_back += meter.given_back
        for reason, number in meter.dropped.items():
            self.dropped[reason] += number
        for reason, number in meter.quarantined.items():
            self.quarantined[reason] += number
        for reason, number in meter.converted_with_loss.items():
            self.converted_with_loss[reason] += number
        self.transfer.add(meter.transfer)
        self.binding_sync.add(meter.binding_sync)


@dataclass(slots=True)
class Gauges:
    """The current values of a link, without history; None means unknown."""

    in_flight: int = 0
    unsettled: int = 0  # those, and what waits to be published again, quarantined or given back
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
    limited_by: str = ""  # its rate limit, if that holds messages back
    limited_seconds: float = 0.0  # for which it has kept the link from reading
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


@dataclass(slots=True)
class BoardEntry:
    link: Link
    state: LinkState
    since: float
    meter: Meter
    gauges: Callable[[], Gauges]
    monotonic: Callable[[], float]
    failures: Counter[tuple[Side, str]] = field(default_factory=Counter)
    last_confirm: float | None = None
    history: History = field(default_factory=History)
    message_rate: MessageRate = field(init=False)
    ran_until: float | None = None  # when its last run that was more than an attempt ended
    reason: Reason = Reason.APPEARED  # of its status and its error now
    changed_for: Reason = Reason.APPEARED  # that of the last change of its status
    outages: OutageTracker = field(default_factory=OutageTracker)
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
        self.message_rate = MessageRate(self.since, self.meter.forwarded)

    @property
    def reconnects(self) -> int:
        """The number of times that it lost its connections; repeated attempts aren't counted."""
        return self.failures.total()

    @property
    def blocked_seconds(self) -> float:
        """Total time that it was blocked, independent of the wall clock."""
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
        before = self.state
        # A link that is down may be so for another reason each time it tries.
        if (state.status, state.error, state.broken) != (before.status, before.error, before.broken):
            self.reason = reason
            self.outages.update(now, state.status, state.failure, state.error, worked=worked)
        if state.broken is not None and self.state.broken is None:
            failure = state.broken.failure
            self.failures[failure.side or Side.UPSTREAM, word_of(failure)] += 1
        if (state.status, state.error) != (before.status, before.error):
            self.history.add_transition(now, state.status, reason, state.error)
        self.state = state

    def acknowledge(self, known: Acknowledgement | None) -> None:
        self._acknowledged = known

    def acknowledged(self, now: float) -> Acknowledgement | None:
        """The acknowledgement of its trouble, until its time is over or the link has run well for a minute."""
        known = self._acknowledged
        since = max(self.since, self.in_time_since)
        is_well = self.state.status is Status.RUNNING and self.critical_since is None and now - since >= STEADY
        if known is not None and (known.is_over(now) or is_well):
            self._acknowledged = None
        return self._acknowledged

    def _has_worked(self, now: float) -> bool:
        """True if its present run is more than an attempt: a link that is broken may open again and again."""
        is_first = self.ran_until is None
        return is_first or now - self.since >= STEADY or (self.last_confirm or 0.0) >= self.since

    def move(self, now: float) -> None:
        if self.meter.forwarded != self._confirmed:
            self._confirmed = self.meter.forwarded
            self.last_confirm = now
        self.message_rate.add(now, self.meter.forwarded)
        self.note_backlog(now)
        self.note_lag(now)
        if self.history.is_due(now):
            self.history.add_sample(self.sample_at(now))

    def note_backlog(self, now: float) -> None:
        """Remembers how many messages wait, for when that can't be known any more."""
        backlog = self.gauges().backlog
        if backlog is not None:
            self.backlog_last, self.backlog_last_at = backlog, now
        if backlog == 0 or not self._empty_at:
            self._empty_at = now

    def note_lag(self, now: float) -> None:
        """Update the lag. To be called before the lag is read: nothing else updates it while no message moves."""
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
        flow = self.history.flow(self.sample_at(now))
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
            self.lag = describe_lag(
                limit,
                backlog=backlog,
                behind=self.behind,
                flow=flow,
                held=held,
                is_auto=is_auto,
                limited_by=gauges.limited_by,
            )

    @property
    def lag_is_critical(self) -> bool | None:
        """True if the lag was critical at the last `note_lag`; None without `lag-critical`."""
        return None if self.link.settings.lag_critical is None else self.critical_since is not None

    def rate(self, now: float) -> float:
        """Messages in a second, over the last seconds; 0 of a link that can't publish."""
        is_blocked = any(block.side is Side.DOWNSTREAM for block in self.state.blocked)
        can_publish = self.state.status in MOVING and not is_blocked
        return self.message_rate.rate(now, self.meter.forwarded) if can_publish else 0.0

    def flowed_at(self, now: float) -> float | None:
        """The time of its last message, `now` for one since the last round; None before the first."""
        return self.last_confirm if self.meter.forwarded == self._confirmed else now

    def is_incident(self, now: float) -> bool:
        """True if messages flowed shortly before and don't now, or too slowly."""
        flowed_at = self.flowed_at(now)
        if self.state.status in DOWN | DEGRADED:
            return was_flowing(flowed_at, began(self.since, self.ran_until))
        is_behind = self.critical_since is not None and self.state.status is Status.RUNNING
        return is_behind and was_flowing(flowed_at, self.critical_since or 0.0)

    def has_new_note(self) -> bool:
        """True if its note is another one than at the last call."""
        gauges = self.gauges()
        now = f"{gauges.note}{gauges.limited_by}{self.critical_since or ''}"
        before, self._note = self._note, now
        return now != before

    def sample_at(self, now: float) -> LinkSample:
        meter, gauges = self.meter, self.gauges()
        messages = meter.forwarded, meter.bytes, gauges.in_flight, gauges.backlog
        return LinkSample(now, *messages, gauges.oldest_unconfirmed)
