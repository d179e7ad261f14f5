"""Causes of trouble, from the board, as `/api/causes` shows them."""

from __future__ import annotations

from typing import Any

from agent.core.links.lifecycle import Status
from agent.core.links.pauses import LONG
from agent.core.status.advice import denied
from agent.core.status.causes import (
    Cause,
    LinkFacts,
    advice_for,
    causes_of,
    headline,
    level_of,
    verdict,
    waiting_of,
)
from agent.status.board import Board, Entry
from agent.status.slices import in_slices
from agent.status.times import rfc3339

THIS_CLUSTER = "this cluster"  # where its name isn't known


async def summary(board: Board) -> dict[str, Any]:
    """What is wrong, most important first, and one sentence about the whole."""
    now = board.clock()
    links = [facts(entry, now) async for entry in in_slices(board)]
    causes = causes_of(links, downstream=_downstream(board))
    waiting = waiting_of(links)
    return {
        "level": level_of(links),
        "verdict": verdict(causes, links, now=now),
        "waiting": {"messages": waiting.messages, "is_exact": waiting.is_exact},
        "causes": [_view(cause, len(links), now) for cause in causes],
    }


async def advice_of(board: Board, entry: Entry) -> str | None:
    """What to do about one link; None where there is nothing to do."""
    now = board.clock()
    link = facts(entry, now)
    others: list[LinkFacts] = []
    if denied(link.error) is not None:  # no other advice depends on other links
        others = [facts(each, now) async for each in in_slices(board) if denied(each.state.error) is not None]
    return advice_for(link, others, downstream=_downstream(board)) or None


def _downstream(board: Board) -> str:
    return board.cluster or THIS_CLUSTER


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
