"""The findings as plain values. Instants are microseconds since 1970, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.pipeline.schema import Bucket

SECOND: Final = 1_000_000
BEHIND: Final = "behind"
"""Of links whose lag was critical, in place of a status."""


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / SECOND


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds by bucket."""

    seconds: Mapping[Bucket, float] = field(default_factory=dict)

    def of(self, *buckets: Bucket) -> float:
        return sum(self.seconds.get(bucket, 0.0) for bucket in buckets)

    @property
    def availability(self) -> float | None:
        """Percent of the time in which messages should have flowed; None if there was none."""
        flowing = self.of(Bucket.UP, Bucket.DEGRADED, Bucket.DOWN)
        return 100.0 * self.of(Bucket.UP) / flowing if flowing else None

    @property
    def coverage(self) -> float | None:
        """Percent of the time that is known."""
        whole = self.of(*Bucket)
        return 100.0 - 100.0 * self.of(Bucket.UNKNOWN) / whole if whole else None


@dataclass(frozen=True, slots=True)
class Which:
    """A link; very long names are cut."""

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

    which: Which
    spent: Spent
    incidents: int
    lag_critical: float | None = None


@dataclass(frozen=True, slots=True)
class LagTime:
    """For how long the lag of how many links was critical; `known_links` have a limit, and agents that tell."""

    seconds: float | None = None
    links: int = 0
    known_links: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """All links together; `previous` is None if the tables hold nothing of the period before."""

    links: int
    spent: Spent
    previous: Spent | None
    previous_links: int
    lag: LagTime = field(default_factory=LagTime)


@dataclass(frozen=True, slots=True)
class GroupTime:
    """All links of a group of agents."""

    name: str | None
    links: int
    spent: Spent
    incidents: int
    messages: int
    worst: tuple[LinkTime, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    messages: int = 0
    bytes: int = 0
    redelivered: int = 0
    dropped: int = 0
    quarantined: int = 0
    returned: int = 0


@dataclass(frozen=True, slots=True)
class Outage:
    """Incidents that belong together, or a single one, of the link `which`."""

    scope: str | None
    name: str | None
    which: Which
    span: Span
    open: bool
    links: int
    down_seconds: float
    reason: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """All outages, or all times `blocked` or `stalled`, of the same links for the same reason: `times` of them within
    `span`. Without a scope it is of the link `which`. `seconds` is the sum over links. Of links that were `behind` only
    the hours are known, and `longest` is of all times of the link that was so for longest."""

    status: str
    scope: str | None
    name: str | None
    which: Which
    span: Span
    open: bool
    links: int
    times: int
    seconds: float
    longest: float
    reason: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Incident:
    which: Which
    span: Span
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
    outages_in_all: int = 0
    waited: int = 0
    outages: tuple[Outage, ...] = ()
    most_severe: tuple[Incident, ...] = ()
    troubles_in_all: int = 0
    troubles: tuple[Trouble, ...] = ()
    """Those that cost most time first."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The status of one link in a part of the window."""

    number: int
    spent: Spent


@dataclass(frozen=True, slots=True)
class Strip:
    which: Which
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class HeatRow:
    """Availability by period; None for a period without data."""

    label: tuple[str | None, ...]
    cells: Mapping[int, float | None]


@dataclass(frozen=True, slots=True)
class Heat:
    """Of `edges` or `links`; `periods` are the starts of hours, days, weeks, months or years, according to `unit`."""

    of: str
    unit: str
    periods: tuple[int, ...]
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, slots=True)
class Percentiles:
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """A part of the window; all parts have the same length."""

    start: int
    messages: int
    transfer: Percentiles
    lag: Percentiles


@dataclass(frozen=True, slots=True)
class Flow:
    """`step`: the length of a moment."""

    step: int = 300 * SECOND
    cost: Cost = field(default_factory=Cost)
    transfer: Percentiles = field(default_factory=Percentiles)
    lag: Percentiles = field(default_factory=Percentiles)
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    source: str | None
    target: str | None
    links: int
    messages: int
    spent: Spent


@dataclass(frozen=True, slots=True)
class Edges:
    count: int = 0
    busiest: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective, met or not by each link; `burning`: links that currently use up their budget too fast."""

    name: str
    measured_by: str
    target: float
    days: int
    links: int
    met: int
    attained: float | None
    consumed: float | None
    burning: int
    seen_days: float
    """How much of `days` lies in the window: `consumed` is of the budget of this time."""
    of_period: float | None
    """How much is used of the budget of all its days; None for messages, whose number is not known before."""


@dataclass(frozen=True, slots=True)
class Promise:
    """How much one link has used of one objective's budget."""

    which: Which
    objective: str
    target: float
    attained: float | None
    consumed: float | None
    burns: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Promises:
    objectives: tuple[Objective, ...] = ()
    worst: tuple[Promise, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
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
class Findings:
    """`worst` are the links with the least availability, those with timelines first."""

    window: Span
    zone: str
    lines: Mapping[str, int]
    fleet: Fleet
    worst: tuple[LinkTime, ...] = ()
    failures: Failures = field(default_factory=Failures)
    slots: int = 0
    strips: tuple[Strip, ...] = ()
    heat: tuple[Heat, ...] = ()
    flow: Flow = field(default_factory=Flow)
    edges: Edges = field(default_factory=Edges)
    promises: Promises = field(default_factory=Promises)
    of: str = ""
    """What was chosen; empty if it is all links."""
    groups: tuple[GroupTime, ...] = ()
    account: Account = field(default_factory=Account)
