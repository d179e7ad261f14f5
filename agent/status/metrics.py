"""`/metrics`: the board in the format of Prometheus. Never a URI or an error's text.

The text of links is written here in small pieces, not by prometheus-client: two thousand links are a hundred thousand
lines, and messages would wait for the half second that its writer needs for them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from agent.core.model import LinkKind
from agent.slices import in_slices
from agent.status import expiry
from agent.status.board import Board, Entry
from agent.status.families import INFO, LINK_FAMILIES, Brief, Family, LinkReading, Sample, Type, labelled
from agent.status.http import native
from agent.status.stuck import STUCK, StuckLinks

Labels = tuple[str, str, str, str]
PACK: Final = 50  # links whose lines are combined
LABELS: Final = ("kind", "vhost", "name", "upstream")

AGENT_FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family
    for family in (
        Family("federation_agent_config_reload_success", Type.GAUGE, "Whether all definitions are in force."),
        Family(
            "federation_agent_config_reload_timestamp_seconds",
            Type.GAUGE,
            "When all definitions were last read and put in force.",
        ),
        Family("federation_agent_config_refusals_total", Type.COUNTER, "Definitions that were refused."),
        Family(
            "federation_agent_definitions_not_run",
            Type.GAUGE,
            "Definitions that are valid and that the agent does nothing with.",
        ),
        Family(
            "federation_agent_quarantine_messages",
            Type.GAUGE,
            "Messages that wait in the quarantines beside the sources of this agent's links; no value while unknown.",
        ),
        Family(
            "federation_agent_public_url_info",
            Type.GAUGE,
            "Where browsers reach the page, where agent.http.public-url says so.",
            labels=("url",),
        ),
        Family("federation_agent_ready", Type.GAUGE, "Whether definitions were read and links follow them."),
        Family(
            "federation_agent_export_dropped_events_total",
            Type.COUNTER,
            "Events that the status export dropped.",
        ),
        Family(
            "federation_agent_unexpected_errors_total",
            Type.COUNTER,
            "Errors that the agent did not expect, by the task in which they happened.",
            labels=("task",),
        ),
        Family(
            "rabbitmq_federation_links",
            Type.GAUGE,
            "Federation links by status, as the native plugin counts.",
            labels=("status",),
        ),
        Family(
            "rabbitmq_shovel_dynamic",
            Type.GAUGE,
            "Shovels by status, as the native plugin counts.",
            labels=("status",),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Form:
    """`is_open`: as OpenMetrics; `is_brief`: with less of each link."""

    is_open: bool = False
    is_brief: bool = False


USUAL: Final = Form()


class Upstreams:
    """Sums over the links of an upstream, with what was counted by those that are gone."""

    def __init__(self) -> None:
        self._sums: dict[str, defaultdict[str, float]] = {}

    def add_gone(self, board: Board) -> None:
        for (kind, vhost, upstream), totals in board.left.items():
            for family in LINK_FAMILIES:
                if family.count is not None:
                    self.add((kind, vhost, "", upstream), family, family.count(totals))

    def add(self, labels: Labels, family: Family, samples: Iterable[Sample]) -> None:
        kind, vhost, _, upstream = labels
        of_vhost = {} if family.brief is Brief.NAME else {"kind": kind, "vhost": vhost}
        common = labelled(of_vhost | {"upstream": upstream})
        sums = self._sums.setdefault(family.name, defaultdict(int))
        for suffix, more, value in samples:
            sums[f"{family.name}{suffix}{{{common}{more}}}"] += value

    def lines(self, family: Family) -> bytes:
        return "".join(f"{key} {value}\n" for key, value in self._sums.get(family.name, {}).items()).encode(
            errors="replace"
        )


async def exposition(board: Board, form: Form = USUAL) -> list[bytes]:
    """In pieces, each small enough to be written in one go."""
    grouped: dict[Labels, list[Entry]] = {}
    async for entry in in_slices(board):
        grouped.setdefault(_labels(entry), []).append(entry)
    lines: list[list[str]] = [[] for _ in LINK_FAMILIES]
    written: list[list[bytes]] = [[_head(family, form)] for family in LINK_FAMILIES]
    upstreams, stuck = Upstreams(), StuckLinks(board)
    now = board.clock()
    number = 0
    async for labels, together in in_slices(grouped.items()):
        for entry in together:
            entry.note_lag(now)
            stuck.add(entry, now)
        readings = [LinkReading(entry, entry.gauges(), form.is_brief) for entry in together]
        _write(labels, readings, lines, upstreams if form.is_brief else None)
        number += 1
        if number % PACK == 0:
            _pack(lines, written)
    stuck.add_deleted()
    _pack(lines, written)
    about = [
        _about(board, form),
        _of_agent(board, tuple(board), form),
        _head(STUCK, form) + stuck.lines(),
        expiry.exposition(board.expiries),
    ]
    await asyncio.sleep(0)
    if form.is_brief:
        upstreams.add_gone(board)
    for family, into in zip(LINK_FAMILIES, written, strict=True):
        into.append(upstreams.lines(family))
    end = [b"# EOF\n"] if form.is_open else []
    return [_process(form), *about, *(piece for family in written for piece in family), *end]


def _write(labels: Labels, together: list[LinkReading], lines: list[list[str]], upstreams: Upstreams | None) -> None:
    """Adds the lines of all links that share their labels to each family; `upstreams` where metrics are to be short."""
    common = labelled(dict(zip(LABELS, labels, strict=True)))
    for family, into in zip(LINK_FAMILIES, lines, strict=True):
        name = family.name
        samples = family.samples(together[0]) if len(together) == 1 else _joined(family, together)
        if upstreams is not None:
            if family.brief in {Brief.UPSTREAM, Brief.NAME}:
                upstreams.add(labels, family, samples)
                continue
            if family.brief is Brief.COUNTED:
                samples = [each for each in samples if each[2]]
        into += [f"{name}{suffix}{{{common}{more}}} {value}\n" for suffix, more, value in samples]


def _joined(family: Family, together: Iterable[LinkReading]) -> list[Sample]:
    found: dict[tuple[str, str], list[float]] = {}
    for looked in together:
        for suffix, more, value in family.samples(looked):
            found.setdefault((suffix, more), []).append(value)
    return [(suffix, more, family.join(values)) for (suffix, more), values in found.items()]


def _pack(lines: list[list[str]], written: list[list[bytes]]) -> None:
    for of_family, into in zip(lines, written, strict=True):
        if of_family:
            into.append("".join(of_family).encode(errors="replace"))
            of_family.clear()


def _head(family: Family, form: Form) -> bytes:
    """OpenMetrics calls a counter what its samples are called without their end."""
    name = family.name.removesuffix("_total") if form.is_open and family.type is Type.COUNTER else family.name
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n".encode()


def _labels(entry: Entry) -> Labels:
    link = entry.link
    return link.kind, link.vhost, link.name, link.upstream


def _process(form: Form) -> bytes:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    if form.is_open:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text.removesuffix(b"# EOF\n")
    return generate_latest(registry)


def _about(board: Board, form: Form) -> bytes:
    told = labelled({"version": board.version, "agent": board.owner, "group": board.group})
    return _head(INFO, form) + f"{INFO.name}{{{told}}} 1\n".encode(errors="replace")


def _of_agent(board: Board, entries: Iterable[Entry], form: Form) -> bytes:
    values: Mapping[str, Mapping[str, float]] = {
        "federation_agent_config_reload_success": {"": int(not board.problems)},
        "federation_agent_config_reload_timestamp_seconds": {"": board.reloaded_at},
        "federation_agent_config_refusals_total": {"": board.refusals},
        "federation_agent_definitions_not_run": {"": len(board.not_run)},
        "federation_agent_quarantine_messages": {"": waiting}
        if (waiting := board.in_quarantine.messages) is not None
        else {},
        "federation_agent_public_url_info": {f"{{{labelled({'url': board.public_url})}}}": 1}
        if board.public_url
        else {},
        "federation_agent_ready": {"": int(board.ready)},
        "federation_agent_export_dropped_events_total": {"": board.export_dropped},
        "federation_agent_unexpected_errors_total": {
            f"{{{labelled({'task': task})}}}": count for task, count in board.errors.counts.items()
        },
        "rabbitmq_federation_links": _by_status(entries, native.LINK_STATES, shovels=False),
        "rabbitmq_shovel_dynamic": _by_status(entries, native.SHOVEL_STATES, shovels=True),
    }
    return b"".join(
        _head(family, form) + "".join(f"{name}{labels} {value}\n" for labels, value in values[name].items()).encode()
        for name, family in AGENT_FAMILIES.items()
    )


def _by_status(entries: Iterable[Entry], states: Iterable[str], *, shovels: bool) -> dict[str, float]:
    tell = native.shovel_state if shovels else native.link_state
    found = Counter(tell(entry.state) for entry in entries if (entry.link.kind is LinkKind.SHOVEL) is shovels)
    return {f'{{status="{state}"}}': found[state] for state in states}
