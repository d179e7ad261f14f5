"""Causes of trouble, from the board, as `/api/causes` shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Final, TypedDict

from agent.core.addresses.uri import AmqpUri
from agent.core.links.lifecycle import LONG_PAUSE, Level, Status
from agent.core.model import DEFAULT_VHOST, Link, ShovelLink
from agent.core.permissions import Need, needs_of, needs_of_agent
from agent.core.status.acknowledgements import Acknowledgement
from agent.core.status.advice import advice
from agent.core.status.causes import (
    DOWN,
    SIDES,
    Cause,
    LinkFacts,
    advice_for,
    broker_of,
    causes_of,
    headline,
    level_of,
    verdict,
    waiting_of,
)
from agent.core.status.failure_kinds import CAUSES
from agent.core.text import rfc3339
from agent.errors import Failure, FailureKind
from agent.slices import in_slices
from agent.status.board import Board, Broker
from agent.status.entry import BoardEntry, Gauges
from agent.status.json_schema import Count, LinkId, Time
from agent.status.views import FailureView, ShownFailure, failure_view

MOST_EXACT: Final = 10  # causes whose advice is worked out from all links: each takes a look at every one
_COMING_BACK: Final = DOWN | {Status.STARTING, Status.RUNNING}


class WaitingView(TypedDict):
    messages: Count
    is_exact: bool


class AcknowledgementView(TypedDict):
    by: str
    at: Time
    reason: str
    until: Time | None
    text: str


class CauseView(TypedDict):
    id: Annotated[LinkId, "The same as long as it lasts and its broker is called the same."]
    side: Annotated[str, ("enum", SIDES)]
    broker: str
    trouble: Annotated[FailureKind, ("enum", CAUSES)]
    headline: str
    since: Time
    links: list[LinkId]
    names: list[str]
    were_flowing: Count
    waiting: WaitingView
    error: str
    failure: ShownFailure
    advice: str
    acknowledged: Annotated[AcknowledgementView | None, "Who knows of it, if that is known of all its links."]


class CausesView(TypedDict):
    level: Level
    verdict: str
    waiting: WaitingView
    causes: list[CauseView]


async def summary(board: Board) -> CausesView:
    """The causes, most important first, and one sentence about the whole."""
    now = board.clock()
    links = await _links(board, now)
    causes = list(causes_of(links, downstream=board.downstream_name))
    for at, cause in enumerate(causes[:MOST_EXACT]):
        causes[at] = await _exactly(board, cause, links)
    waiting = waiting_of(links)
    return {
        "level": level_of(links),
        "verdict": verdict(causes, links, now=now),
        "waiting": {"messages": waiting.messages, "is_exact": waiting.is_exact},
        "causes": [_view(cause, len(links), now) for cause in causes],
    }


async def links_of(board: Board, cause_id: str) -> list[LinkFacts]:
    """The links of a cause; none where it is over."""
    links = await _links(board, board.clock())
    causes = causes_of(links, downstream=board.downstream_name)
    concerned = frozenset(link for cause in causes if cause.id == cause_id for link in cause.links)
    return [link for link in links if link.id in concerned]


async def _links(board: Board, now: float) -> list[LinkFacts]:
    return [facts(board, entry, now) async for entry in in_slices(board)] + board.deleted()


async def advice_of(board: Board, entry: BoardEntry) -> str | None:
    """Advice about one link; None where there is nothing to do."""
    now = board.clock()
    link = facts(board, entry, now)
    others: list[LinkFacts] = []
    needs: list[Need] = []
    missing, downstream = link.failure, board.downstream_name
    if missing is not None and missing.kind is FailureKind.PERMISSION:  # no other advice depends on other links
        others = [facts(board, each, now) async for each in in_slices(board) if _is_denied(each) and each is not entry]
        needs = await _needs(board, missing, broker_of(link, downstream=downstream))
    return advice_for(link, others, downstream=downstream, needs=needs) or None


async def _exactly(board: Board, cause: Cause, links: Iterable[LinkFacts]) -> Cause:
    """The cause with advice for all its links, where a user lacks a permission."""
    missing = cause.failure
    if missing is None or missing.kind is not FailureKind.PERMISSION:
        return cause
    concerned = frozenset(cause.links)
    failures = [link.failure for link in links if link.id in concerned and link.failure is not None]
    needs = await _needs(board, missing, cause.broker)
    exact = advice(cause.trouble, cause.broker, cause.links, failures=[missing, *failures], needs=needs)
    return replace(cause, advice=exact)


def _is_denied(entry: BoardEntry) -> bool:
    failure = entry.state.failure
    return failure is not None and failure.kind is FailureKind.PERMISSION


async def _needs(board: Board, missing: Failure, broker: str) -> list[Need]:
    """The permissions that the refused user needs in that vhost; downstream that user is the agent's own."""
    is_own = broker == board.downstream_name
    found: dict[Need, None] = {}
    async for entry in in_slices(board):
        link, gauges = entry.link, entry.gauges()
        ends = needs_of(
            link, source_vhost=missing.vhost, cluster=board.cluster or "", source_asks=False, destination_asks=False
        )
        default = DEFAULT_VHOST if isinstance(link, ShovelLink) else link.vhost
        if board.source_of(link, gauges).name == broker and _names_account(link.uris, missing, default):
            found |= dict.fromkeys(ends.source)
        if isinstance(link, ShovelLink):
            is_there = board.destination_of(link, gauges).name == broker
            goes_there = is_there and _names_account(link.shovel.destination_uris, missing, default)
        else:
            goes_there = is_own and link.vhost == missing.vhost
        found |= dict.fromkeys(ends.destination if goes_there else ())
    of_agent = needs_of_agent((), with_events=missing.vhost == DEFAULT_VHOST) if is_own and found else ()
    return [*found, *of_agent]


def _names_account(uris: Iterable[AmqpUri], missing: Failure, default_vhost: str) -> bool:
    return any(
        uri.vhost(default_vhost) == missing.vhost and (uri.is_downstream_itself or uri.login[0] == missing.user)
        for uri in uris
    )


def facts(board: Board, entry: BoardEntry, now: float) -> LinkFacts:
    since = (entry.state.pause.at or entry.since) if entry.state.status is Status.PAUSED else entry.since
    entry.note_lag(now)
    gauges = entry.gauges()
    source, destination = board.source_of(entry.link, gauges), board.destination_of(entry.link, gauges)
    recurring = entry.outages.recurring(now) if entry.state.status in _COMING_BACK else None
    is_behind = entry.critical_since is not None  # of which other notes are no reason
    if recurring is None:
        failure, error, trouble_since = entry.state.failure, entry.state.error, entry.outages.since(now)
        error = error or (gauges.trouble if is_behind else gauges.note)
    else:
        failure, error, trouble_since = recurring.failure, recurring.error, recurring.first
    if entry.state.status is Status.STALLED and trouble_since is not None:
        confirmed = max(entry.flowed_at(now) or 0.0, now - gauges.oldest_unconfirmed)
        trouble_since = min(trouble_since, confirmed)  # it is stalled only after some time
    return LinkFacts(
        id=entry.link.id,
        status=entry.state.status,
        failure=failure,
        error=error,
        upstream=source.name,
        since=since,
        is_forgotten=entry.state.status is Status.PAUSED and now - since >= LONG_PAUSE,
        last_confirm=entry.flowed_at(now),
        ran_until=entry.ran_until,
        waiting=gauges.backlog if gauges.backlog_is_exact else None,
        waited_last=entry.backlog_last if gauges.backlog is None else gauges.backlog,
        lag=entry.lag,
        behind_since=entry.critical_since,
        is_refused=gauges.is_refused,
        is_from_downstream=source.is_downstream,
        destination="" if destination.is_downstream else destination.name,
        destination_vhost=_destination_vhost(entry.link, gauges),
        trouble_since=trouble_since,
        recurs=recurring is not None,
        vhost=entry.link.vhost,
        name=entry.link.name,
        acknowledged=entry.acknowledged(now),
    )


def _destination_vhost(link: Link, gauges: Gauges) -> str:
    if not isinstance(link, ShovelLink):
        return link.vhost
    return (gauges.destination or link.shovel.destination_uris[0]).vhost(DEFAULT_VHOST)


def _view(cause: Cause, total: int, now: float) -> CauseView:
    return {
        "id": cause.id,
        "side": cause.side,
        "broker": cause.broker,
        "trouble": cause.trouble,
        "headline": headline(cause, total, now=now),
        "since": rfc3339(cause.since),
        "links": list(cause.links),
        "names": list(cause.names),
        "were_flowing": cause.were_flowing,
        "waiting": {"messages": cause.waiting.messages, "is_exact": cause.waiting.is_exact},
        "error": cause.error,
        "failure": _failure(cause),
        "advice": cause.advice,
        "acknowledged": _acknowledged(cause.acknowledged),
    }


def _failure(cause: Cause) -> FailureView | None:
    broker = Broker(cause.broker, is_known=True, is_downstream=False)
    found = failure_view(cause.failure, source=broker, destination=broker)
    return None if found is None else {**found, "side": cause.side}


def _acknowledged(known: Acknowledgement | None) -> AcknowledgementView | None:
    if known is None:
        return None
    until = None if known.until is None else rfc3339(known.until)
    return {"by": known.by, "at": rfc3339(known.at), "reason": known.reason, "until": until, "text": known.text}
