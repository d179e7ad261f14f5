"""A link and the agent as the API shows them: `/api/links`, `/api/overview`."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, TypedDict

from agent.core.addresses.uri import AmqpUri
from agent.core.export_event import Reason
from agent.core.links.lag import held_to
from agent.core.links.lifecycle import Status
from agent.core.model import ExchangeLink, Link, LinkKind, QueueLink, ShovelLink
from agent.core.permissions import Permission
from agent.core.text import rfc3339
from agent.errors import Failure, FailureKind, Side
from agent.status.board import Board, Broker
from agent.status.entry import BoardEntry, Gauges
from agent.status.history import HistoryView, Range
from agent.status.json_schema import Count, LinkId, Seconds, Time
from agent.status.moves import MoveView, move_view
from agent.status.standby import StandbyInShort, standby_in_short


class EndsView(TypedDict, total=False):
    exchange: str
    upstream_exchange: str
    queue: str
    upstream_queue: str
    name: str
    source: str
    destination: str
    destination_uri: str


class FailureView(TypedDict):
    kind: FailureKind
    side: str | None
    broker: str | None
    user: str | None
    vhost: str | None
    object: str | None
    object_type: Annotated[Any, ("enum", ("exchange", "queue", "topic", "vhost", None))]
    permission: Annotated[Any, ("enum", (*Permission, None))]


ShownFailure = Annotated[
    FailureView | None,
    "The facts of what keeps messages from moving, as far as the broker says them; null where nothing fails. The "
    "object of a topic is its exchange.",
]


class PauseView(TypedDict):
    by: str | None
    at: Time | None
    reason: str | None


class LagCriticalView(TypedDict):
    seconds: float | None
    messages: Count | None


class RateLimitView(TypedDict):
    messages: Count | None
    bytes: Count | None


class _LinkIdentity(TypedDict):
    id: LinkId
    kind: LinkKind
    vhost: str
    upstream: str
    upstream_cluster: str | None
    destination_cluster: str | None
    uri: str | None
    policy: str
    status: Status
    error: str | None
    failure: ShownFailure
    since: Time
    owner: str | None


class CountsView(TypedDict):
    forwarded: Count
    bytes: Count
    redelivered: Count
    dropped: Count
    quarantined: Count
    returned: Count
    converted_with_loss: Annotated[
        dict[str, int], "Messages that lost something by being converted from or to AMQP 1.0, by what they lost."
    ]
    in_flight: Count
    backlog: Annotated[Count | None, "Messages upstream and in the agent; null while unknown."]
    backlog_is_exact: Annotated[bool, "Whether no more than `backlog` messages wait."]
    oldest_unconfirmed_seconds: Seconds
    lag_seconds: Annotated[float | None, "Seconds that the last probe took; null without any."]
    last_probe: Time | None
    prefetch: Count
    bindings: Count
    last_confirm: Time | None
    limited: Annotated[bool, "Whether its `rate-limit` holds messages back now, or did within the last 2 seconds."]


class LinkView(_LinkIdentity, CountsView, EndsView):
    reconnects: Count
    reason: Reason
    incident: Annotated[bool, "Messages flowed shortly before its trouble began, and don't now."]
    backlog_last: Annotated[Count | None, "As last known; `backlog_last_at` says when."]
    backlog_last_at: Time | None
    paused: Annotated[PauseView | None, "Who paused it, when and why; null unless it is paused."]
    rate: Annotated[Seconds, "Messages in a second, over the last 10 seconds; 0 where it can't publish."]
    lag_critical: Annotated[LagCriticalView | None, "How far it may fall behind; null unless `lag-critical` is set."]
    behind_seconds: Annotated[
        float | None, "Estimate of how long a message waits that arrives now; null unless `lag-critical` is a time."
    ]
    critical_since: Annotated[Time | None, "Since when it has been further behind than `lag-critical`."]
    rate_limit: Annotated[
        RateLimitView | None, "The most that it forwards in a second; null unless `rate-limit` is set."
    ]


class LinkWithHistory(LinkView):
    advice: Annotated[str | None, "What to do, with commands between backticks; null where there is nothing to do."]
    history: HistoryView


def link_view(board: Board, entry: BoardEntry) -> LinkView:
    link, state, gauges, now = entry.link, entry.state, entry.gauges(), board.clock()
    entry.note_lag(now)
    source, destination = board.source_of(link, gauges), board.destination_of(link, gauges)
    limit, behind, pause = link.settings.lag_critical, entry.behind, state.pause
    rate_limit = link.settings.rate_limit
    paused_at = rfc3339(pause.at) if pause.at else None
    return {
        "id": link.id,
        "kind": link.kind,
        "vhost": link.vhost,
        **ends(link, gauges),
        "upstream": link.upstream,
        "upstream_cluster": source.name if source.is_known else None,
        "destination_cluster": destination.name if destination.is_known else None,
        "uri": shown_uri(gauges.uri, link.uris),
        "policy": link.policy,
        "status": state.status,
        "error": gauges.removal or state.error or _remarks(entry, gauges),
        "failure": failure_view(state.failure, source=source, destination=destination),
        "since": rfc3339(entry.since),
        "owner": board.owner if gauges.runs_here and state.status is not Status.STANDBY else gauges.owner,
        **_counts(entry, gauges),
        "rate": round(entry.rate(now), 2),
        "incident": entry.is_incident(now),
        "reconnects": entry.reconnects,
        "reason": entry.reason,
        "backlog_last": entry.backlog_last if gauges.backlog is None else gauges.backlog,
        "backlog_last_at": _backlog_at(entry, gauges, now),
        "paused": {"by": pause.by or None, "at": paused_at, "reason": pause.reason or None} if state.paused else None,
        "lag_critical": None if limit is None else {"seconds": limit.seconds, "messages": limit.messages},
        "behind_seconds": None if behind is None else round(behind, 3),
        "critical_since": None if entry.critical_since is None else rfc3339(entry.critical_since),
        "rate_limit": None if rate_limit is None else {"messages": rate_limit.messages, "bytes": rate_limit.bytes},
    }


def sample_view(board: Board, entry: BoardEntry) -> dict[str, Any]:
    """The numbers of a link that change while it runs."""
    gauges, now = entry.gauges(), board.clock()
    found = {
        "id": entry.link.id,
        **_counts(entry, gauges),
        "rate": round(entry.rate(now), 2),
        "incident": entry.is_incident(now),
    }
    if entry.lag.text:
        behind = None if entry.behind is None else round(entry.behind, 3)
        found |= {"error": _remarks(entry, gauges), "behind_seconds": behind}
    return found


def history_view(board: Board, entry: BoardEntry, span: Range = Range.QUARTER) -> HistoryView:
    """The recent history of a link, up to now."""
    return entry.history.view(entry.sample_at(board.clock()), span)


def _counts(entry: BoardEntry, gauges: Gauges) -> CountsView:
    meter = entry.meter
    return {
        "forwarded": meter.forwarded,
        "bytes": meter.bytes,
        "redelivered": meter.redelivered,
        "dropped": sum(meter.dropped.values()),
        "quarantined": sum(meter.quarantined.values()),
        "returned": meter.returned,
        "converted_with_loss": dict(meter.converted_with_loss),
        "in_flight": gauges.in_flight,
        "backlog": gauges.backlog,
        "backlog_is_exact": gauges.backlog is not None and gauges.backlog_is_exact,
        "oldest_unconfirmed_seconds": round(gauges.oldest_unconfirmed, 3),
        "lag_seconds": None if gauges.lag is None else round(gauges.lag, 3),
        "last_probe": None if gauges.last_probe is None else rfc3339(gauges.last_probe),
        "prefetch": gauges.prefetch,
        "bindings": gauges.bindings,
        "last_confirm": None if entry.last_confirm is None else rfc3339(entry.last_confirm),
        "limited": bool(gauges.limited_by),
    }


def _backlog_at(entry: BoardEntry, gauges: Gauges, now: float) -> str | None:
    if gauges.backlog is not None:
        return rfc3339(now)
    return None if entry.backlog_last is None else rfc3339(entry.backlog_last_at)


def _remarks(entry: BoardEntry, gauges: Gauges) -> str | None:
    """The remarks on a link that has no error; None if there are none."""
    limited = held_to(gauges.limited_by) if gauges.limited_by and not entry.lag.is_limited else ""
    return "; ".join(filter(None, (entry.lag.text, gauges.note, limited))) or None


def failure_view(failure: Failure | None, *, source: Broker, destination: Broker) -> FailureView | None:
    """The facts of what keeps a link from moving messages; a fact that isn't known is null."""
    if failure is None:
        return None
    broker = destination if failure.side is Side.DOWNSTREAM else source
    return {
        "kind": failure.kind,
        "side": failure.side or None,
        "broker": broker.name or None,
        "user": failure.user or None,
        "vhost": failure.vhost or None,
        "object": failure.object or None,
        "object_type": failure.object_type or None,
        "permission": failure.permission or None,
    }


def shown_uri(connected: AmqpUri | None, defined: tuple[AmqpUri, ...]) -> str | None:
    """The endpoint that the link is connected to; the first one until then."""
    uri = connected or next(iter(defined), None)
    return None if uri is None else uri.safe


def ends(link: Link, gauges: Gauges) -> EndsView:
    match link:
        case ExchangeLink():
            return {"exchange": link.name, "upstream_exchange": link.remote_name}
        case QueueLink():
            return {"queue": link.name, "upstream_queue": link.remote_name}
        case ShovelLink():
            return {
                "name": link.name,
                "source": str(link.shovel.source),
                "destination": str(link.shovel.destination),
                "destination_uri": shown_uri(gauges.destination, link.shovel.destination_uris) or "",
            }


class QuarantineView(TypedDict):
    messages: Annotated[Count | None, "Messages that wait in the quarantines of these links; null while unknown."]
    is_exact: Annotated[bool, "Whether no more than `messages` wait."]
    unseen: Annotated[Count, "Messages put where the agent could not look."]
    quarantined: Annotated[Count, "Messages put there since the agent started."]


LinksByStatus = Annotated[
    dict[str, int], ("properties", {str(status): {"type": "integer", "minimum": 0} for status in Status})
]


class ProblemView(TypedDict):
    place: str
    message: str


class AgentOverview(TypedDict):
    agent: str
    group: str
    cluster: str | None
    version: str
    ready: bool
    unread: str | None
    problems: list[str]
    notes: list[str]
    not_run: list[str]
    not_run_details: Annotated[list[ProblemView], "The same as `not_run`."]
    reload_success: bool
    reloaded: Time | None
    now: Time
    links: Annotated[LinksByStatus, ("required", tuple(map(str, Status)))]
    quarantine: QuarantineView
    standby: Annotated[StandbyInShort | None, "As `/api/standby`, in short; null without one."]
    move: Annotated[MoveView | None, "The links of `migrate run` and `migrate rollback`; null without any."]


def overview(board: Board) -> AgentOverview:
    """The agent itself."""
    found = Counter(entry.state.status for entry in board)
    return {
        "agent": board.owner,
        "group": board.group,
        "cluster": board.cluster,
        "version": board.version,
        "ready": board.ready,
        "unread": board.unread or None,
        "problems": [*board.problems, *board.errors.problems],
        "notes": list(board.notes),
        "not_run": [str(each) for each in board.not_run],
        "not_run_details": [{"place": str(each.place), "message": each.message} for each in board.not_run],
        "reload_success": not board.problems,
        "reloaded": rfc3339(board.reloaded_at) if board.reloaded_at else None,
        "now": rfc3339(board.clock()),
        "links": {status: found[status] for status in Status},
        "quarantine": {
            "messages": board.quarantine_depth.messages,
            "is_exact": board.quarantine_depth.is_exact,
            "unseen": board.quarantine_depth.unseen,
            "quarantined": sum(sum(entry.meter.quarantined.values()) for entry in board),
        },
        "standby": standby_in_short(board),
        "move": move_view(board),
    }
