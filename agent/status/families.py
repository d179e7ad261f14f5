"""Every metric of a link: its name, its type, and how it is read from the board."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.core.links.histogram import Histogram
from agent.core.links.lifecycle import Status
from agent.core.links.reasons import WORDS
from agent.core.rules.hops import Verdict
from agent.core.rules.quarantine import QuarantineReason
from agent.errors import Side
from agent.status.board import Entry, Gauges
from agent.status.meter import Meter

PREFIX: Final = "federation_agent_"
Sample = tuple[str, str, float]
"""The suffix of the family's name, further labels as text that begins with a comma, and a value."""


class Brief(StrEnum):
    """What is left of a family where metrics are to be short."""

    LINK = "link"  # all of it
    UPSTREAM = "upstream"  # one sum for the links of one kind from an upstream of a vhost
    NAME = "name"  # one sum for all links from upstreams of one name, where each has many lines
    COUNTED = "counted"  # what isn't zero


class Type(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class LinkReading:
    """One link at one moment. `is_brief`: with few of the states that it isn't in."""

    entry: Entry
    gauges: Gauges
    is_brief: bool = False


def _nothing(_: LinkReading) -> Iterable[Sample]:
    return ()


@dataclass(frozen=True, slots=True)
class Family:
    """`labels` are those besides a link's own; `join` combines links that share all labels. What sums are made of is
    read from a meter by `count`, since the counts of links that are gone are kept: a counter never falls."""

    name: str
    type: Type
    help: str
    read: Callable[[LinkReading], Iterable[Sample]] = _nothing
    labels: tuple[str, ...] = ()
    join: Callable[[list[float]], float] = sum
    brief: Brief = Brief.LINK
    count: Callable[[Meter], Iterable[Sample]] | None = None

    def samples(self, looked: LinkReading) -> Iterable[Sample]:
        return self.read(looked) if self.count is None else self.count(looked.entry.meter)


def labelled(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _one(read: Callable[[LinkReading], float | None]) -> Callable[[LinkReading], Iterable[Sample]]:
    """An unknown value is omitted: a zero would be wrong."""

    def reads(looked: LinkReading) -> Iterable[Sample]:
        value = read(looked)
        return () if value is None else (("", "", value),)

    return reads


def _states(looked: LinkReading) -> Iterable[Sample]:
    current = looked.entry.state.status
    shown = _few_states(current) if looked.is_brief else Status
    return [("", text, int(status is current)) for status, text in _STATE_LABELS if status in shown]


def _few_states(current: Status) -> Collection[Status]:
    """Rules look for links that don't move messages, and for those that run: each of the two groups has a value."""
    shown = {Status.RUNNING, current}
    return shown if shown & _STUCK else shown | {Status.STARTING}


def _dropped(meter: Meter) -> Iterable[Sample]:
    return [("", text, meter.dropped.get(reason, 0)) for reason, text in _DROP_LABELS]


def _reconnects(looked: LinkReading) -> Iterable[Sample]:
    failures = looked.entry.failures
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


def _any(values: list[float]) -> float:
    return int(any(values))


_STUCK: Final = frozenset({Status.STARTING, Status.BACKOFF, Status.INVALID, Status.BLOCKED, Status.STALLED})
_STATE_LABELS: Final = tuple((status, f',state="{status}"') for status in Status)
_RECONNECT_LABELS: Final = tuple(((side, word), f',side="{side}",reason="{word}"') for side in Side for word in WORDS)
_QUARANTINE_LABELS: Final = tuple((reason, f',reason="{reason}"') for reason in QuarantineReason)
_DROP_LABELS: Final = tuple((v, f',reason="{v}"') for v in Verdict if v is not Verdict.FORWARD)

INFO: Final = Family(f"{PREFIX}info", Type.GAUGE, "This agent.", labels=("version", "agent", "group"))
LINK_FAMILIES: Final = (
    Family(f"{PREFIX}link_state", Type.GAUGE, "Whether the link is in a state.", _states, ("state",), _any),
    Family(
        f"{PREFIX}forwarded_messages_total",
        Type.COUNTER,
        "Messages that the downstream has confirmed.",
        _one(lambda of: of.entry.meter.forwarded),
    ),
    Family(
        f"{PREFIX}forwarded_bytes_total",
        Type.COUNTER,
        "Bytes of the bodies of forwarded messages.",
        _one(lambda of: of.entry.meter.bytes),
    ),
    Family(
        f"{PREFIX}redelivered_messages_total",
        Type.COUNTER,
        "Forwarded messages that the upstream had delivered before.",
        count=lambda meter: (("", "", meter.redelivered),),
        brief=Brief.UPSTREAM,
    ),
    Family(
        f"{PREFIX}dropped_messages_total",
        Type.COUNTER,
        "Messages that were not forwarded.",
        count=_dropped,
        labels=("reason",),
        brief=Brief.UPSTREAM,
    ),
    Family(
        f"{PREFIX}returned_messages_total",
        Type.COUNTER,
        "Forwarded messages that the downstream could not route to a queue.",
        count=lambda meter: (("", "", meter.returned),),
        brief=Brief.UPSTREAM,
    ),
    Family(
        f"{PREFIX}quarantined_messages_total",
        Type.COUNTER,
        "Messages that the downstream can't accept, moved to a quarantine upstream.",
        count=_quarantined,
        labels=("reason",),
        brief=Brief.UPSTREAM,
    ),
    Family(
        f"{PREFIX}reconnects_total",
        Type.COUNTER,
        "How often the link lost its connections; attempts while it is down are not counted.",
        _reconnects,
        ("side", "reason"),
        brief=Brief.COUNTED,
    ),
    Family(
        f"{PREFIX}blocked_seconds_total",
        Type.COUNTER,
        "For how long a broker has blocked the link.",
        _one(lambda of: round(of.entry.blocked_seconds, 3)),
        brief=Brief.COUNTED,
    ),
    Family(
        f"{PREFIX}in_flight_messages",
        Type.GAUGE,
        "Messages published and not confirmed yet.",
        _one(lambda of: of.gauges.in_flight),
        brief=Brief.UPSTREAM,
    ),
    Family(
        f"{PREFIX}backlog_messages",
        Type.GAUGE,
        "Messages that wait upstream or in the agent; no value while unknown.",
        _one(lambda of: of.gauges.backlog),
    ),
    Family(
        f"{PREFIX}oldest_unconfirmed_seconds",
        Type.GAUGE,
        "For how long the oldest message waits for its confirm, be it in flight, or refused and tried again.",
        _one(lambda of: round(of.gauges.oldest_unconfirmed, 3)),
        join=max,
        brief=Brief.COUNTED,
    ),
    Family(
        f"{PREFIX}lag_seconds",
        Type.GAUGE,
        "Seconds that the last probe took through the link, or that the next one waits; no value without probes.",
        _one(lambda of: of.gauges.lag),
        join=max,
    ),
    Family(
        f"{PREFIX}behind_seconds",
        Type.GAUGE,
        "Estimate of how long a message waits that arrives now; only for links with a time as `lag-critical`.",
        _one(lambda of: of.entry.behind),
        join=max,
    ),
    Family(
        f"{PREFIX}lag_critical_seconds",
        Type.GAUGE,
        "The time in `lag-critical` of the link.",
        _one(lambda of: limit.seconds if (limit := of.entry.link.settings.lag_critical) else None),
        join=min,
    ),
    Family(
        f"{PREFIX}lag_critical_messages",
        Type.GAUGE,
        "The number of messages in `lag-critical` of the link.",
        _one(lambda of: limit.messages if (limit := of.entry.link.settings.lag_critical) else None),
        join=min,
    ),
    Family(
        f"{PREFIX}last_confirm_timestamp_seconds",
        Type.GAUGE,
        "When the downstream last confirmed a message; no value before the first.",
        _one(lambda of: None if (at := of.entry.last_confirm) is None else round(at, 3)),
        join=max,
    ),
    Family(
        f"{PREFIX}prefetch",
        Type.GAUGE,
        "Messages that the upstream may deliver without acknowledgement.",
        _one(lambda of: of.gauges.prefetch),
        brief=Brief.UPSTREAM,
    ),
    Family(
        f"{PREFIX}bindings",
        Type.GAUGE,
        "Grouped bindings that exist upstream.",
        _one(lambda of: of.gauges.bindings),
        brief=Brief.UPSTREAM,
    ),
    Family(
        f"{PREFIX}transfer_seconds",
        Type.HISTOGRAM,
        "Time from a message's delivery to its confirm.",
        count=_buckets(lambda meter: meter.transfer),
        labels=("le",),
        brief=Brief.NAME,
    ),
    Family(
        f"{PREFIX}binding_sync_seconds",
        Type.HISTOGRAM,
        "Time from a change of bindings until it takes effect upstream.",
        count=_buckets(lambda meter: meter.binding_sync),
        labels=("le",),
        brief=Brief.NAME,
    ),
)
