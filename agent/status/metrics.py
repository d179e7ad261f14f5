"""`/metrics`: the board in the format of Prometheus. Never a URI or an error's text.

The text of links is written here in small pieces, not by prometheus-client: two thousand links are a hundred thousand
lines, and messages would wait for the half second that its writer needs for them.

Why: docs/decisions/0052-own-metrics-text.md
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from agent.core.addresses.expiry import Credential, Expiry
from agent.core.status.causes import LinkFacts, blamed, stands_still
from agent.slices import in_slices
from agent.status.board import Board
from agent.status.causes import facts
from agent.status.entry import BoardEntry
from agent.status.metric_definitions import (
    AGENT_METRICS,
    CERTIFICATE,
    INFO,
    LINK_METRICS,
    STUCK,
    TOKEN,
    Brief,
    LinkMetric,
    LinkReading,
    Metric,
    MetricType,
    Sample,
    labelled,
)

Labels = tuple[str, str, str, str]
PACK: Final = 50  # links whose lines are combined
LABELS: Final = ("kind", "vhost", "name", "upstream")


@dataclass(frozen=True, slots=True)
class Form:
    """`is_open`: as OpenMetrics; `is_brief`: with less of each link."""

    is_open: bool = False
    is_brief: bool = False


USUAL: Final = Form()


class UpstreamSums:
    """Sums over the links of an upstream, with what was counted by those that are gone."""

    def __init__(self) -> None:
        self._sums: dict[str, defaultdict[str, float]] = {}

    def add_gone(self, board: Board) -> None:
        for (kind, vhost, upstream), totals in board.totals_of_removed.items():
            for metric in LINK_METRICS:
                if metric.count is not None:
                    self.add((kind, vhost, "", upstream), metric, metric.count(totals))

    def add(self, labels: Labels, metric: LinkMetric, samples: Iterable[Sample]) -> None:
        kind, vhost, _, upstream = labels
        of_vhost = {} if metric.brief is Brief.NAME else {"kind": kind, "vhost": vhost}
        common = labelled(of_vhost | {"upstream": upstream})
        sums = self._sums.setdefault(metric.name, defaultdict(int))
        for suffix, more, value in samples:
            sums[f"{metric.name}{suffix}{{{common}{more}}}"] += value

    def lines(self, metric: LinkMetric) -> bytes:
        return "".join(f"{key} {value}\n" for key, value in self._sums.get(metric.name, {}).items()).encode(
            errors="replace"
        )


async def exposition(board: Board, form: Form = USUAL) -> list[bytes]:
    """The metrics as text in pieces, each small enough to be written in one go."""
    grouped: defaultdict[Labels, list[BoardEntry]] = defaultdict(list)
    async for entry in in_slices(board):
        link = entry.link
        grouped[link.kind, link.vhost, link.name, link.upstream].append(entry)
    lines: list[list[str]] = [[] for _ in LINK_METRICS]
    written: list[list[bytes]] = [[_head(metric, form)] for metric in LINK_METRICS]
    upstreams = UpstreamSums()
    stuck: Counter[tuple[str, ...]] = Counter()
    now = board.clock()
    number = 0
    async for labels, together in in_slices(grouped.items()):
        for entry in together:
            entry.note_lag(now)
            if stands_still(entry.state.status):
                stuck[_stuck_labels(facts(board, entry, now), entry.link.upstream)] += 1
        readings = [LinkReading(entry, entry.gauges(), form.is_brief) for entry in together]
        _write(labels, readings, lines, upstreams if form.is_brief else None)
        number += 1
        if number % PACK == 0:
            _pack(lines, written)
    stuck.update(_stuck_labels(each, each.upstream) for each in board.deleted())
    _pack(lines, written)
    info = {"version": board.version, "agent": board.owner, "group": board.group}
    about = [
        _lines(INFO, {labelled(info): 1}, form),
        *(_lines(metric, metric.read(board), form) for metric in AGENT_METRICS),
        _lines(
            STUCK, {labelled(dict(zip(STUCK.labels, key, strict=True))): count for key, count in stuck.items()}, form
        ),
        expiries(board.expiries, form),
    ]
    await asyncio.sleep(0)
    if form.is_brief:
        upstreams.add_gone(board)
    for metric, into in zip(LINK_METRICS, written, strict=True):
        into.append(upstreams.lines(metric))
    end = [b"# EOF\n"] if form.is_open else []
    return [_process(form), *about, *(piece for metric in written for piece in metric), *end]


def _write(labels: Labels, together: list[LinkReading], lines: list[list[str]], upstreams: UpstreamSums | None) -> None:
    """Adds the lines of all links that share their labels to each metric; `upstreams` where metrics are to be short."""
    common = labelled(dict(zip(LABELS, labels, strict=True)))
    for metric, into in zip(LINK_METRICS, lines, strict=True):
        name = metric.name
        samples = metric.samples(together[0]) if len(together) == 1 else _joined(metric, together)
        if upstreams is not None:
            if metric.brief in {Brief.UPSTREAM, Brief.NAME}:
                upstreams.add(labels, metric, samples)
                continue
            if metric.brief is Brief.COUNTED:
                samples = [each for each in samples if each[2]]
        into += [f"{name}{suffix}{{{common}{more}}} {value}\n" for suffix, more, value in samples]


def _joined(metric: LinkMetric, together: Iterable[LinkReading]) -> list[Sample]:
    found: dict[tuple[str, str], list[float]] = {}
    for reading in together:
        for suffix, more, value in metric.samples(reading):
            found.setdefault((suffix, more), []).append(value)
    return [(suffix, more, metric.join(values)) for (suffix, more), values in found.items()]


def _pack(lines: list[list[str]], written: list[list[bytes]]) -> None:
    for of_metric, into in zip(lines, written, strict=True):
        if of_metric:
            into.append("".join(of_metric).encode(errors="replace"))
            of_metric.clear()


def _head(metric: Metric, form: Form) -> bytes:
    """The lines above a metric. OpenMetrics omits the `_total` of a counter here, which its samples have."""
    name = metric.name.removesuffix("_total") if form.is_open and metric.type is MetricType.COUNTER else metric.name
    return f"# HELP {name} {metric.help}\n# TYPE {name} {metric.type}\n".encode()


def _process(form: Form) -> bytes:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    if form.is_open:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text.removesuffix(b"# EOF\n")
    return generate_latest(registry)


def _stuck_labels(link: LinkFacts, upstream: str) -> tuple[str, ...]:
    """The labels of a link that stands still. An upstream has its name here: labels hold no addresses."""
    side, trouble = blamed(link)
    return side, trouble, link.vhost, upstream


def expiries(found: Iterable[Expiry], form: Form = USUAL) -> bytes:
    """The first to expire of those with the same labels, such as those of interchangeable endpoints."""
    first: dict[Metric, dict[str, float]] = {CERTIFICATE: {}, TOKEN: {}}
    for each in found:
        metric = TOKEN if each.credential is Credential.JWT else CERTIFICATE
        of = {"peer": each.peer, "vhost": each.vhost, "upstream": each.upstream, "certificate": each.credential}
        labels = labelled({name: of[name] for name in metric.labels})
        first[metric][labels] = min(each.at, first[metric].get(labels, each.at))
    return b"".join(_lines(metric, values, form) for metric, values in first.items())


def _lines(metric: Metric, values: Mapping[str, float], form: Form) -> bytes:
    """A metric of the agent: its values by their labels as text."""
    named = ((f"{metric.name}{{{labels}}}" if labels else metric.name, value) for labels, value in values.items())
    return _head(metric, form) + "".join(f"{name} {value}\n" for name, value in named).encode(errors="replace")
