"""The metrics of `/metrics`: names, types and texts, and how those of a link are read from the board."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agent.core.links.lag import Histogram
from agent.core.links.lifecycle import Status
from agent.core.links.reasons import WORDS
from agent.core.model import LinkKind
from agent.core.rules.hops import Verdict
from agent.core.rules.quarantine import QuarantineReason
from agent.errors import Side
from agent.status import native
from agent.status.board import Board
from agent.status.entry import BoardEntry, Gauges, Meter
from agent.status.standby import standby_links

Sample = tuple[str, str, float]
"""The suffix of the metric's name, further labels as text that begins with a comma, and a value."""


class Brief(StrEnum):
    """The part of a metric that is shown where metrics are to be short."""

    LINK = "link"  # all of it
    UPSTREAM = "upstream"  # one sum for the links of one kind from an upstream of a vhost
    NAME = "name"  # one sum for all links from upstreams of one name, where each has many lines
    COUNTED = "counted"  # what isn't zero


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """`labels` are those besides a link's own."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def type(self) -> MetricType:
        """Names and labels follow the conventions of Prometheus: only counters end with `_total`."""
        if "le" in self.labels:
            return MetricType.HISTOGRAM
        return MetricType.COUNTER if self.name.endswith("_total") else MetricType.GAUGE


@dataclass(frozen=True, slots=True)
class LinkReading:
    """One link at one moment. `is_brief`: with few of the states that it isn't in."""

    entry: BoardEntry
    gauges: Gauges
    is_brief: bool = False


def _nothing(_: LinkReading) -> Iterable[Sample]:
    return ()


@dataclass(frozen=True, slots=True)
class LinkMetric(Metric):
    """`join` combines links that share all labels. Counters that are added up over links are read from a meter by
    `count`: the counts of links that are gone are kept, since a counter never falls."""

    read: Callable[[LinkReading], Iterable[Sample]] = _nothing
    join: Callable[[list[float]], float] = sum
    brief: Brief = Brief.LINK
    count: Callable[[Meter], Iterable[Sample]] | None = None

    def samples(self, reading: LinkReading) -> Iterable[Sample]:
        return self.read(reading) if self.count is None else self.count(reading.entry.meter)


@dataclass(frozen=True, slots=True)
class AgentMetric(Metric):
    """`read` returns its values by their labels as text."""

    read: Callable[[Board], Mapping[str, float]] = field(kw_only=True)


def labelled(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _one(read: Callable[[LinkReading], float | None]) -> Callable[[LinkReading], Iterable[Sample]]:
    """An unknown value is omitted: a zero would be wrong."""

    def reads(reading: LinkReading) -> Iterable[Sample]:
        value = read(reading)
        return () if value is None else (("", "", value),)

    return reads


def _states(reading: LinkReading) -> Iterable[Sample]:
    current = reading.entry.state.status
    shown = _few_states(current) if reading.is_brief else Status
    return [("", text, int(status is current)) for status, text in _STATE_LABELS if status in shown]


def _few_states(current: Status) -> Collection[Status]:
    """The states that are shown of a link where metrics are to be short. Rules look for links that don't move messages,
    and for those that run: each of the two groups has a value."""
    shown = {Status.RUNNING, current}
    return shown if shown & _STUCK else shown | {Status.STARTING}


def _dropped(meter: Meter) -> Iterable[Sample]:
    return [("", text, meter.dropped.get(reason, 0)) for reason, text in _DROP_LABELS]


def _reconnects(reading: LinkReading) -> Iterable[Sample]:
    failures = reading.entry.failures
    return [("", text, failures[kind]) for kind, text in _RECONNECT_LABELS]


def _quarantined(meter: Meter) -> Iterable[Sample]:
    return [("", text, meter.quarantined.get(reason, 0)) for reason, text in _QUARANTINE_LABELS]


def _buckets(find: Callable[[Meter], Histogram]) -> Callable[[Meter], Iterable[Sample]]:
    def count(meter: Meter) -> Iterable[Sample]:
        histogram = find(meter)
        counts = tuple(histogram.cumulative)
        texts = (*(f',le="{bound!r}"' for bound in histogram.bounds), ',le="+Inf"')
        yield from (("_bucket", text, count) for text, count in zip(texts, counts, strict=True))
        yield "_sum", "", histogram.sum
        yield "_count", "", counts[-1]

    return count


def _limited_seconds(of: LinkReading) -> float | None:
    seconds = of.gauges.limited_seconds
    return round(seconds, 3) if seconds or of.entry.link.settings.rate_limit is not None else None


def _any(values: list[float]) -> float:
    return int(any(values))


_STUCK: Final = frozenset({Status.STARTING, Status.BACKOFF, Status.INVALID, Status.BLOCKED, Status.STALLED})
_STATE_LABELS: Final = tuple((status, f',state="{status}"') for status in Status)
_RECONNECT_LABELS: Final = tuple(((side, word), f',side="{side}",reason="{word}"') for side in Side for word in WORDS)
_QUARANTINE_LABELS: Final = tuple((reason, f',reason="{reason}"') for reason in QuarantineReason)
_DROP_LABELS: Final = tuple((v, f',reason="{v}"') for v in Verdict if v is not Verdict.FORWARD)

STUCK: Final = Metric(
    "federation_agent_stuck_links",
    "Links that are down, blocked or stalled, by the side that is the cause; no value where there are none.",
    labels=("side", "trouble", "vhost", "upstream"),
)
CERTIFICATE: Final = Metric(
    "federation_agent_certificate_expiry_timestamp_seconds",
    "When a certificate of the agent or of a broker expires.",
    labels=("peer", "vhost", "upstream", "certificate"),
)
TOKEN: Final = Metric(
    "federation_agent_token_expiry_timestamp_seconds",
    "When a password that is a JSON Web Token expires.",
    labels=("peer", "vhost", "upstream"),
)
INFO: Final = Metric("federation_agent_info", "This agent.", labels=("version", "agent", "group"))
LINK_METRICS: Final = (
    LinkMetric(
        "federation_agent_link_state", "Whether the link is in a state.", labels=("state",), read=_states, join=_any
    ),
    LinkMetric(
        "federation_agent_forwarded_messages_total",
        "Messages that the downstream has confirmed.",
        read=_one(lambda of: of.entry.meter.forwarded),
    ),
    LinkMetric(
        "federation_agent_forwarded_bytes_total",
        "Bytes of the bodies of forwarded messages.",
        read=_one(lambda of: of.entry.meter.bytes),
    ),
    LinkMetric(
        "federation_agent_redelivered_messages_total",
        "Forwarded messages that the upstream had delivered before.",
        count=lambda meter: (("", "", meter.redelivered),),
        brief=Brief.UPSTREAM,
    ),
    LinkMetric(
        "federation_agent_dropped_messages_total",
        "Messages that were not forwarded.",
        count=_dropped,
        labels=("reason",),
        brief=Brief.UPSTREAM,
    ),
    LinkMetric(
        "federation_agent_returned_messages_total",
        "Forwarded messages that the downstream could not route to a queue.",
        count=lambda meter: (("", "", meter.returned),),
        brief=Brief.UPSTREAM,
    ),
    LinkMetric(
        "federation_agent_quarantined_messages_total",
        "Messages that the downstream can't accept, moved to a quarantine upstream.",
        count=_quarantined,
        labels=("reason",),
        brief=Brief.UPSTREAM,
    ),
    LinkMetric(
        "federation_agent_converted_with_loss_messages_total",
        "Messages that lost something by being converted from or to AMQP 1.0; one may count under several reasons.",
        count=lambda meter: [("", f',reason="{name}"', count) for name, count in meter.converted_with_loss.items()],
        labels=("reason",),
        brief=Brief.UPSTREAM,
    ),
    LinkMetric(
        "federation_agent_reconnects_total",
        "How often the link lost its connections; attempts while it is down are not counted.",
        labels=("side", "reason"),
        read=_reconnects,
        brief=Brief.COUNTED,
    ),
    LinkMetric(
        "federation_agent_blocked_seconds_total",
        "For how long a broker has blocked the link.",
        read=_one(lambda of: round(of.entry.blocked_seconds, 3)),
        brief=Brief.COUNTED,
    ),
    LinkMetric(
        "federation_agent_link_limited_seconds_total",
        "For how long its `rate-limit` has kept the link from reading; no value for a link that never had one.",
        read=_one(_limited_seconds),
    ),
    LinkMetric(
        "federation_agent_in_flight_messages",
        "Messages published and not confirmed yet.",
        read=_one(lambda of: of.gauges.in_flight),
        brief=Brief.UPSTREAM,
    ),
    LinkMetric(
        "federation_agent_backlog_messages",
        "Messages that wait upstream or in the agent; no value while unknown.",
        read=_one(lambda of: of.gauges.backlog),
    ),
    LinkMetric(
        "federation_agent_oldest_unconfirmed_seconds",
        "For how long the oldest message waits for its confirm, be it in flight, or refused and tried again.",
        read=_one(lambda of: round(of.gauges.oldest_unconfirmed, 3)),
        join=max,
        brief=Brief.COUNTED,
    ),
    LinkMetric(
        "federation_agent_lag_seconds",
        "Seconds that the last probe took through the link, or that the next one waits; no value without probes.",
        read=_one(lambda of: of.gauges.lag),
        join=max,
    ),
    LinkMetric(
        "federation_agent_behind_seconds",
        "Estimate of how long a message waits that arrives now; only for links with a time as `lag-critical`.",
        read=_one(lambda of: of.entry.behind),
        join=max,
    ),
    LinkMetric(
        "federation_agent_lag_critical_seconds",
        "The time in `lag-critical` of the link.",
        read=_one(lambda of: limit.seconds if (limit := of.entry.link.settings.lag_critical) else None),
        join=min,
    ),
    LinkMetric(
        "federation_agent_lag_critical_messages",
        "The number of messages in `lag-critical` of the link.",
        read=_one(lambda of: limit.messages if (limit := of.entry.link.settings.lag_critical) else None),
        join=min,
    ),
    LinkMetric(
        "federation_agent_last_confirm_timestamp_seconds",
        "When the downstream last confirmed a message; no value before the first.",
        read=_one(lambda of: None if (at := of.entry.last_confirm) is None else round(at, 3)),
        join=max,
    ),
    LinkMetric(
        "federation_agent_prefetch",
        "Messages that the upstream may deliver without acknowledgement.",
        read=_one(lambda of: of.gauges.prefetch),
        brief=Brief.UPSTREAM,
    ),
    LinkMetric(
        "federation_agent_bindings",
        "Grouped bindings that exist upstream.",
        read=_one(lambda of: of.gauges.bindings),
        brief=Brief.UPSTREAM,
    ),
    LinkMetric(
        "federation_agent_transfer_seconds",
        "Time from a message's delivery to its confirm.",
        count=_buckets(lambda meter: meter.transfer),
        labels=("le",),
        brief=Brief.NAME,
    ),
    LinkMetric(
        "federation_agent_binding_sync_seconds",
        "Time from a change of bindings until it takes effect upstream.",
        count=_buckets(lambda meter: meter.binding_sync),
        labels=("le",),
        brief=Brief.NAME,
    ),
)


def _by_status(board: Board, *, shovels: bool) -> dict[str, float]:
    state_of = native.shovel_state if shovels else native.link_state
    found = Counter(state_of(entry.state) for entry in board if (entry.link.kind is LinkKind.SHOVEL) is shovels)
    return {f'status="{state}"': found[state] for state in (native.SHOVEL_STATES if shovels else native.LINK_STATES)}


def _in_step(board: Board) -> dict[str, float]:
    status = board.standby
    if status is None or status.promoted_at is not None:
        return {}
    return {"": int(not status.why_not_in_step(standby_links(board), board.clock()))}


def _repeats(board: Board) -> dict[str, float]:
    found = None if board.standby is None else board.standby.repeats_at_most
    return {} if found is None else {"": found}


AGENT_METRICS: Final = (
    AgentMetric(
        "federation_agent_config_reload_success",
        "Whether all definitions are in force.",
        read=lambda board: {"": int(not board.problems)},
    ),
    AgentMetric(
        "federation_agent_config_reload_timestamp_seconds",
        "When all definitions were last read and put in force.",
        read=lambda board: {"": board.reloaded_at},
    ),
    AgentMetric(
        "federation_agent_config_refusals_total",
        "Definitions that were refused.",
        read=lambda board: {"": board.refusals},
    ),
    AgentMetric(
        "federation_agent_definitions_not_run",
        "Definitions that are valid and that the agent does nothing with.",
        read=lambda board: {"": len(board.not_run)},
    ),
    AgentMetric(
        "federation_agent_quarantine_messages",
        "Messages that wait in the quarantines beside the sources of this agent's links; no value while unknown.",
        read=lambda board: {} if (waiting := board.quarantine_depth.messages) is None else {"": waiting},
    ),
    AgentMetric(
        "federation_agent_public_url_info",
        "Where browsers reach the page, where agent.http.public-url says so.",
        labels=("url",),
        read=lambda board: {labelled({"url": board.public_url}): 1} if board.public_url else {},
    ),
    AgentMetric(
        "federation_agent_ready",
        "Whether definitions were read and links follow them.",
        read=lambda board: {"": int(board.ready)},
    ),
    AgentMetric(
        "federation_agent_export_dropped_events_total",
        "Events that the status export dropped.",
        read=lambda board: {"": board.export_dropped},
    ),
    AgentMetric(
        "federation_agent_unexpected_errors_total",
        "Errors that the agent did not expect, by the task in which they happened.",
        labels=("task",),
        read=lambda board: {labelled({"task": task}): count for task, count in board.errors.counts.items()},
    ),
    AgentMetric(
        "federation_agent_standby_in_step",
        "Whether the standby is in step with its source; no value without one, or after a promotion.",
        read=_in_step,
    ),
    AgentMetric(
        "federation_agent_standby_repeats_messages",
        "The most messages that a promotion now would repeat; no value while unknown.",
        read=_repeats,
    ),
    AgentMetric(
        "rabbitmq_federation_links",
        "Federation links by status, as the native plugin counts.",
        labels=("status",),
        read=lambda board: _by_status(board, shovels=False),
    ),
    AgentMetric(
        "rabbitmq_shovel_dynamic",
        "Shovels by status, as the native plugin counts.",
        labels=("status",),
        read=lambda board: _by_status(board, shovels=True),
    ),
)
