"""Causes of trouble, from the board, as `/api/causes` shows them."""

from __future__ import annotations

from typing import Any

from agent.core.links.lifecycle import Status
from agent.core.links.pauses import LONG
from agent.core.status.causes import Cause, LinkFacts, causes_of, headline, level_of, verdict, waiting_of
from agent.status.board import Board, Entry
from agent.status.slices import in_slices
from agent.status.times import rfc3339

THIS_CLUSTER = "this cluster"  # where its name isn't known


async def summary(board: Board) -> dict[str, Any]:
    """What is wrong, most important first, and one sentence about the whole."""
    now = board.clock()
    links = [facts(entry, now) async for entry in in_slices(board)]
    causes = causes_of(links, downstream=board.cluster or THIS_CLUSTER)
    waiting = waiting_of(links)
    return {
        "level": level_of(links),
        "verdict": verdict(causes, links, now=now),
        "waiting": {"messages": waiting.messages, "is_exact": waiting.is_exact},
        "causes": [_view(cause, len(links), now) for cause in causes],
    }


def facts(entry: Entry, now: float) -> LinkFacts:
    since = (entry.state.pause.at or entry.since) if entry.state.status is Status.PAUSED else entry.since
    entry.note_lag(now)
    gauges = entry.gauges()
    uri = gauges.uri or next(iter(entry.link.uris), None)
    address = entry.link.upstream if uri is None else f"{uri.connect_host or THIS_CLUSTER}:{uri.connect_port}"
    return LinkFacts(
        id=entry.link.id,
        status=entry.state.status,
        reason=entry.reason,
        error=entry.state.error or gauges.note,
        upstream=gauges.upstream_cluster or address,
        since=since,
        is_forgotten=entry.state.status is Status.PAUSED and now - since >= LONG,
        last_confirm=entry.flowed_at(now),
        ran_until=entry.ran_until,
        waiting=gauges.backlog if gauges.backlog_is_exact else None,
        waited_last=entry.backlog_last if gauges.backlog is None else gauges.backlog,
        behind_since=entry.critical_since,
    )


def _view(cause: Cause, total: int, now: float) -> dict[str, Any]:
    return {
        "side": cause.side,
        "broker": cause.broker,
        "trouble": cause.trouble,
        "headline": headline(cause, total, now=now),
        "since": rfc3339(cause.since),
        "links": list(cause.links),
        "were_flowing": cause.were_flowing,
        "waiting": {"messages": cause.waiting.messages, "is_exact": cause.waiting.is_exact},
        "error": cause.error,
        "advice": cause.advice,
    }
