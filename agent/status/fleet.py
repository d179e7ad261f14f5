"""This agent in short, for a page that shows several: `/api/summary`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.core.links.lifecycle import Status
from agent.core.status.causes import causes_of, level_of, verdict
from agent.core.text.quantities import rfc3339
from agent.slices import in_slices
from agent.status.board import Board
from agent.status.causes import facts
from agent.status.entry import BoardEntry

MOST_EDGES: Final = 500


@dataclass
class Edge:
    """All links from one cluster to another that this agent runs."""

    is_known: bool = False  # the cluster they come from was reached; otherwise its address
    links: Counter[Status] = field(default_factory=Counter)
    rate: float = 0.0
    waiting: int = 0
    is_exact: bool = True
    oldest_unconfirmed: float = 0.0

    def add(self, entry: BoardEntry, now: float) -> None:
        gauges = entry.gauges()
        self.links[entry.state.status] += 1
        self.rate += entry.rate(now)
        self.waiting += (entry.backlog_last or 0) if gauges.backlog is None else gauges.backlog
        self.is_exact = self.is_exact and gauges.backlog is not None and gauges.backlog_is_exact
        self.oldest_unconfirmed = max(self.oldest_unconfirmed, gauges.oldest_unconfirmed)


async def summary(board: Board) -> dict[str, Any]:
    now = board.clock()
    edges: defaultdict[tuple[str, str], Edge] = defaultdict(Edge)
    links = []
    async for entry in in_slices(board):
        links.append(facts(board, entry, now))
        if entry.gauges().runs_here:
            source = board.source_of(entry.link, entry.gauges())
            edge = edges[source.name, board.destination_of(entry.link, entry.gauges()).name]
            edge.is_known = edge.is_known or source.is_known
            edge.add(entry, now)
    links += board.deleted()
    causes = causes_of(links, downstream=board.downstream_name)
    return {
        "agent": board.owner,
        "group": board.group,
        "cluster": board.cluster,
        "version": board.version,
        "ready": board.ready,
        "unread": board.unread or None,
        "now": rfc3339(now),
        "level": level_of(links),
        "verdict": verdict(causes, links, now=now),
        "links": _counts(link.status for link in links),
        "edges": [_view(ends, edge) for ends, edge in _most(edges)],
        "edges_left_out": max(0, len(edges) - MOST_EDGES),
    }


def _most(edges: Mapping[tuple[str, str], Edge]) -> list[tuple[tuple[str, str], Edge]]:
    found = sorted(edges.items(), key=lambda pair: (-pair[1].links.total(), pair[0]))
    return found[:MOST_EDGES]


def _counts(statuses: Iterable[Status]) -> dict[str, int]:
    return {str(status): number for status, number in Counter(statuses).items()}


def _view(ends: tuple[str, str], edge: Edge) -> dict[str, Any]:
    return {
        "upstream": ends[0],
        "destination": ends[1],
        "is_known": edge.is_known,
        "links": {str(status): number for status, number in edge.links.items()},
        "rate": round(edge.rate, 2),
        "waiting": edge.waiting,
        "is_exact": edge.is_exact,
        "oldest_unconfirmed_seconds": round(edge.oldest_unconfirmed, 3),
    }
