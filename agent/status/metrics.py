"""`/metrics`: what the board knows, as Prometheus reads it. Never a URI or an error's text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.core.hops import Verdict
from agent.core.lifecycle import Status
from agent.core.model import LinkKind
from agent.status.board import NATIVE_STATUS, Board, Entry, Gauges

PREFIX: Final = "federation_agent_"
LABELS: Final = ("kind", "vhost", "name", "upstream")
NATIVE_STATES: Final = ("starting", "running", "error", "shutdown")
DROPS: Final = tuple(verdict for verdict in Verdict if verdict is not Verdict.FORWARD)

Labels = tuple[str, ...]


class BoardCollector(Collector):
    """Reads the board when it is scraped; nothing is counted twice and nothing is kept."""

    def __init__(self, board: Board, *, version: str, group: str) -> None:
        self._board = board
        self._info = {"version": version, "agent": board.owner, "group": group}

    def collect(self) -> Iterator[Metric]:
        entries = list(self._board)
        gauges = [entry.gauges() for entry in entries]
        yield self._about()
        yield _states(entries)
        yield from _counters(entries)
        yield from _gauges(entries, gauges)
        yield _native(entries)

    def _about(self) -> Metric:
        return InfoMetricFamily(PREFIX.rstrip("_"), "This agent.", value=self._info)


def text_of(board: Board, *, version: str, group: str) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BoardCollector(board, version=version, group=group))
    return generate_latest(registry)


def _labels(entry: Entry) -> Labels:
    link = entry.link
    return link.kind, link.vhost, link.name, link.upstream


def _states(entries: Iterable[Entry]) -> Metric:
    """One-hot with zeros; links that share their labels are told together."""
    family = GaugeMetricFamily(f"{PREFIX}link_state", "Whether a link is in a state.", labels=(*LABELS, "state"))
    found = Counter((_labels(entry), entry.state.status) for entry in entries)
    for labels in dict.fromkeys(labels for labels, _ in found):
        for status in Status:
            family.add_metric((*labels, status), min(1, found[labels, status]))
    return family


def _counters(entries: list[Entry]) -> Iterator[Metric]:
    told = {
        "forwarded_messages": ("Messages that the downstream has confirmed.", lambda e: e.meter.forwarded),
        "forwarded_bytes": ("Bytes of the bodies of forwarded messages.", lambda e: e.meter.bytes),
        "redelivered_messages": ("Messages that the upstream delivered again.", lambda e: e.meter.redelivered),
        "returned_messages": ("Messages that no queue of the downstream took.", lambda e: e.meter.returned),
    }
    for name, (help_text, value) in told.items():
        yield _summed(CounterMetricFamily(PREFIX + name, help_text, labels=LABELS), entries, map(value, entries))
    yield _dropped(entries)


def _dropped(entries: Iterable[Entry]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}dropped_messages", "Messages not to go on.", labels=(*LABELS, "reason"))
    total: Counter[Labels] = Counter()
    for entry in entries:
        for reason in DROPS:
            total[*_labels(entry), reason] += entry.meter.dropped.get(reason, 0)
    for labels, value in total.items():
        family.add_metric(labels, value)
    return family


def _gauges(entries: list[Entry], gauges: list[Gauges]) -> Iterator[Metric]:
    told = {
        "in_flight_messages": ("Messages published and not confirmed yet.", lambda g: g.in_flight),
        "prefetch": ("Messages that the upstream may send ahead.", lambda g: g.prefetch),
        "bindings": ("Grouped bindings that stand upstream.", lambda g: g.bindings),
    }
    for name, (help_text, value) in told.items():
        yield _summed(GaugeMetricFamily(PREFIX + name, help_text, labels=LABELS), entries, map(value, gauges))


def _summed(
    family: CounterMetricFamily | GaugeMetricFamily, entries: Iterable[Entry], values: Iterable[float]
) -> Metric:
    total: Counter[Labels] = Counter()
    for entry, value in zip(entries, values, strict=True):
        total[_labels(entry)] += value  # type: ignore[assignment]  # counters add floats as well
    for labels, value in total.items():
        family.add_metric(labels, value)
    return family


def _native(entries: Iterable[Entry]) -> Metric:
    """For the dashboards of the native plugin."""
    found = Counter(
        NATIVE_STATUS.get(entry.state.status, "shutdown") for entry in entries if entry.link.kind is not LinkKind.SHOVEL
    )
    family = GaugeMetricFamily("rabbitmq_federation_links", "Federation links by status.", labels=("status",))
    for status in NATIVE_STATES:
        family.add_metric((status,), found[status])
    return family
