"""The findings as plain values. Instants are microseconds since 1970, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.pipeline.schema import CELL, EXPECTED, Bucket
from agent.pipeline.window import Bounds

BEHIND: Final = "behind"
"""The word for links whose lag was critical, in place of a status."""


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Seconds by bucket."""

    seconds: Mapping[Bucket, float] = field(default_factory=dict)

    def of(self, *buckets: Bucket) -> float:
        return sum(self.seconds.get(bucket, 0.0) for bucket in buckets)

    @property
    def availability(self) -> float | None:
        """Percent of the time in which messages should have flowed; None if there was none."""
        flowing = self.of(*EXPECTED)
        return 100.0 * self.of(Bucket.UP) / flowing if flowing else None

    @property
    def was_unavailable(self) -> bool:
        """True if the availability was below 100 %; False also if nothing is known of it."""
        return self.availability is not None and self.availability < 100.0

    @property
    def coverage(self) -> float | None:
        """Percent of the time that is known."""
        whole = self.of(*Bucket)
        return 100.0 - 100.0 * self.of(Bucket.UNKNOWN) / whole if whole else None


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """The names that identify a link; very long ones are cut."""

    group: str | None
    link: str | None
    kind: str | None = None
    vhost: str | None = None
    name: str | None = None
    upstream: str | None = None
    upstream_cluster: str | None = None
    cluster: str | None = None

    @property
    def key(self) -> tuple[str | None, str | None]:
        return self.group, self.link


@dataclass(frozen=True, slots=True)
class LinkTime:
    """`lag_critical`: for how many seconds its lag was; None if that is unknown."""

    identity: LinkIdentity
    spent: TimeSpent
    incidents: int
    lag_critical: float | None = None


@dataclass(frozen=True, slots=True)
class LagTime:
    """The time for which the lag of links was critical, and the number of these links; `known_links` have a limit, and
    agents that report it."""

    seconds: float | None = None
    links: int = 0
    known_links: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """All links together; `previous` is None if the tables hold nothing of the period before."""

    links: int
    spent: TimeSpent
    previous: TimeSpent | None
    previous_links: int
    lag: LagTime = field(default_factory=LagTime)


@dataclass(frozen=True, slots=True)
class GroupTime:
    """All links of a group of agents."""

    name: str
    links: int
    spent: TimeSpent
    incidents: int
    messages: int
    worst: tuple[LinkTime, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageCounts:
    messages: int = 0
    bytes: int = 0
    redelivered: int = 0
    dropped: int = 0
    quarantined: int = 0
    returned: int = 0


@dataclass(frozen=True, slots=True)
class Disruption:
    """An outage: incidents that belong together, or a single one. Or all outages, or all times `blocked` or `stalled`,
    of the same links for the same reason: `times` of them within `span`. Without a scope it is of the link `identity`.
    `seconds` is the sum over links. Of links that were `behind` only the hours are known, and `longest` is of all times
    of the link that was so for longest."""

    status: str
    scope: str | None
    name: str | None
    identity: LinkIdentity
    span: Bounds
    open: bool
    links: int
    times: int
    seconds: float
    longest: float
    reason: str | None
    error: str | None
    failure: dict[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    identity: LinkIdentity
    span: Bounds
    open: bool
    down_seconds: float
    flaps: int
    status: str | None
    reason: str | None
    error: str | None
    peak_backlog: int | None


@dataclass(frozen=True, slots=True)
class Failures:
    """Counts of all; the lists have only the most severe, in chronological order. `waited`: the sum of peak
    backlogs."""

    incidents: int = 0
    open: int = 0
    shared: int = 0
    waited: int = 0
    outages: tuple[Disruption, ...] = ()
    most_severe: tuple[Incident, ...] = ()
    disruption_count: int = 0
    disruptions: tuple[Disruption, ...] = ()
    """Those that cost most time first."""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """Availability by period; None for a period without data."""

    label: tuple[str | None, ...]
    cells: Mapping[int, float | None]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The availability of `edges` or `links` by period; `periods` are the starts of hours, days, weeks, months or
    years, according to `unit`."""

    kind: str
    unit: str
    periods: tuple[int, ...]
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, slots=True)
class Percentiles:
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class TrafficStep:
    """A part of the window; all parts have the same length."""

    start: int
    messages: int
    transfer: Percentiles
    lag: Percentiles


@dataclass(frozen=True, slots=True)
class Traffic:
    """The messages, in all and over time; `step` is the length of a step."""

    step: int = CELL
    counts: MessageCounts = field(default_factory=MessageCounts)
    transfer: Percentiles = field(default_factory=Percentiles)
    lag: Percentiles = field(default_factory=Percentiles)
    steps: tuple[TrafficStep, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterEdge:
    source: str | None
    target: str | None
    links: int
    messages: int
    spent: TimeSpent


@dataclass(frozen=True, slots=True)
class ClusterEdges:
    count: int = 0
    busiest: tuple[ClusterEdge, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """One objective, met or not by each link; `links_burning` currently use up their budget too fast. `summary.json`
    has these fields."""

    name: str
    measured_by: str
    target_percent: float
    days: int
    links: int
    links_met: int
    links_burning: int
    attained_percent: float | None
    consumed_percent: float | None
    seen_days: float
    """The part of `days` that lies in the window, in days: `consumed_percent` is of the budget of this time."""
    period_consumed_percent: float | None
    """The percentage that is used of the budget of all its days; None for messages, whose number is not known
    before."""


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """The use of one objective's budget by one link."""

    identity: LinkIdentity
    objective: str
    target: float
    attained: float | None
    consumed: float | None
    burns: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class MessageAccount:
    """Messages taken by all links; the sum of what is missing or too much in an hour, and on how many links. Links
    whose agents don't count that yet, for a part of the time, are not accounted for. The rest is of `upstream_links`,
    whose upstream's HTTP API shows what entered their queues; `uncounted` is part of `unexplained_upstream`."""

    taken: int = 0
    unexplained: int = 0
    unexplained_links: int = 0
    not_accounted_links: int = 0
    upstream_links: int = 0
    entered: int = 0
    expired: int = 0
    repeated: int = 0
    unexplained_upstream: int = 0
    unexplained_upstream_links: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMove:
    """The queues that agents of a group move from one cluster to another: what arrived, `when`, to five minutes, what
    was last seen waiting in how many of them, until when that was looked at, and the account of what was taken.
    `in_doubt` was on its way at the end; `unknown_queues` are those that nobody looked into, and `not_accounted_queues`
    those whose agents don't count what they take."""

    group: str
    source: str
    target: str | None
    queues: int
    moved: int
    when: Bounds | None
    left: int
    left_queues: int
    unknown_queues: int
    looked_until: int | None
    most_left: tuple[tuple[str, str, int], ...]
    """Vhost, queue and number of those in which most is left."""
    taken: int
    dropped: int
    quarantined: int
    given_back: int
    in_doubt: int
    unexplained: int
    not_accounted_queues: int


@dataclass(frozen=True, slots=True)
class StandbyTime:
    """The standby of a group, and its source. Seconds in each state, as far as it is known; the longest time out of
    step, with why; and promotions, of which the latest are listed."""

    group: str
    upstream: str | None
    in_step: float
    not_in_step: float
    promoted: float
    longest: Bounds | None = None
    error: str | None = None
    promotions: tuple[int, ...] = ()
    promotion_count: int = 0

    @property
    def in_step_percent(self) -> float | None:
        """Of the time in which it was a standby, and known."""
        known = self.in_step + self.not_in_step
        return 100.0 * self.in_step / known if known else None


@dataclass(frozen=True, slots=True)
class ReportFindings:
    """Everything that the page and `summary.json` show. `worst` are the links with the least availability, `budgets`
    the uses of an objective's budget that are highest."""

    window: Bounds
    zone: str
    lines: Mapping[str, int]
    fleet: Fleet
    worst: tuple[LinkTime, ...] = ()
    failures: Failures = field(default_factory=Failures)
    slots: int = 0
    timelines: Mapping[LinkIdentity, Mapping[int, TimeSpent]] = field(default_factory=dict)
    """The time in each slot of the window, by the slot's number: in order, without slots without data. The page refers
    to a link's timeline wherever it names the link."""
    heat_maps: tuple[HeatMap, ...] = ()
    traffic: Traffic = field(default_factory=Traffic)
    edges: ClusterEdges = field(default_factory=ClusterEdges)
    objectives: tuple[ObjectiveResult, ...] = ()
    budgets: tuple[BudgetUse, ...] = ()
    link_filter: str = ""
    """The filter for the links that the findings are about; empty if they are about all."""
    groups: tuple[GroupTime, ...] = ()
    account: MessageAccount = field(default_factory=MessageAccount)
    standbys: tuple[StandbyTime, ...] = ()
    moves: tuple[ClusterMove, ...] = ()
