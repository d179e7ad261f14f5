"""Links in the format of the native management extension."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from agent.core.links.lifecycle import LinkState, Status
from agent.core.model import LinkKind, ShovelLink
from agent.core.status.causes import DOWN
from agent.slices import in_slices
from agent.status.board import Board
from agent.status.entry import MOVING, BoardEntry, Gauges
from agent.status.json_schema import Count, LinkId
from agent.status.views import EndsView, ends, shown_uri

_UP: Final[Mapping[Status, str]] = {**dict.fromkeys(MOVING, "running"), Status.STARTING: "starting"}
AMQP091: Final = "amqp091"
AMQP10: Final = "amqp10"
LOCAL: Final = "local"
UNLIMITED: Final = "unlimited"
BLOCKED: Final = "blocked"
SHUTDOWN: Final = "shutdown"
TERMINATED: Final = "terminated"
LINK_STATES: Final = ("starting", "running", "error", SHUTDOWN)
SHOVEL_STATES: Final = ("starting", "running", TERMINATED)


class NativeLink(EndsView):
    node: str
    type: Annotated[str, ("enum", ("exchange", "queue"))]
    uri: str
    vhost: str
    upstream: str
    id: LinkId
    status: Annotated[str, ("enum", LINK_STATES)]
    timestamp: str
    error: NotRequired[str]


class NativeShovel(TypedDict):
    node: str
    name: str
    vhost: str
    type: Literal["dynamic"]
    state: Annotated[str, ("enum", (*SHOVEL_STATES, BLOCKED))]
    timestamp: str
    src_uri: str
    dest_uri: str
    src_protocol: Annotated[str, ("enum", (AMQP091, AMQP10, LOCAL))]
    dest_protocol: Annotated[str, ("enum", (AMQP091, AMQP10, LOCAL))]
    forwarded: Count
    remaining: Literal["unlimited"] | Count
    remaining_unacked: Literal["unlimited"] | Count
    pending: Count
    blocked_status: Annotated[object, ("enum", ("running", BLOCKED))]
    reason: NotRequired[str]
    src_queue: NotRequired[str]
    src_exchange: NotRequired[str]
    src_exchange_key: NotRequired[str]
    src_address: NotRequired[str]
    dest_queue: NotRequired[str]
    dest_exchange: NotRequired[str]
    dest_exchange_key: NotRequired[str]
    dest_address: NotRequired[str]


def link_state(state: LinkState) -> str:
    return "error" if state.status in DOWN else _UP.get(state.status, SHUTDOWN)


def shovel_state(state: LinkState) -> str:
    return _UP.get(state.status, TERMINATED)


async def links(board: Board, entries: Iterable[BoardEntry]) -> AsyncIterator[dict[str, Any]]:
    async for entry in in_slices(entries):
        if entry.link.kind is not LinkKind.SHOVEL:
            yield native_link(board, entry)


async def links_down(board: Board, entries: Iterable[BoardEntry]) -> AsyncIterator[dict[str, Any]]:
    """The links that are down, without those that are no longer defined: the plugin would no longer list them."""
    async for view in links(board, (each for each in entries if each.state.status is not Status.REMOVING)):
        if view["status"] not in _UP.values():
            yield view


async def shovels(board: Board, entries: Iterable[BoardEntry]) -> AsyncIterator[dict[str, Any]]:
    async for entry in in_slices(entries):
        if entry.link.kind is LinkKind.SHOVEL:
            yield native_shovel(board, entry)


def native_link(board: Board, entry: BoardEntry) -> dict[str, Any]:
    link, state, gauges = entry.link, entry.state, entry.gauges()
    return {
        "node": board.owner,
        "type": link.kind,
        **ends(link, gauges),
        "uri": shown_uri(gauges.uri, link.uris) or "",
        "vhost": link.vhost,
        "upstream": link.upstream,
        "id": link.id,
        "status": link_state(state),
        "timestamp": _time(entry.since),
        **({"error": state.error} if state.error else {}),
    }


def native_shovel(board: Board, entry: BoardEntry) -> dict[str, Any]:
    link, state, gauges = entry.link, entry.state, entry.gauges()
    remaining = 0 if state.completed else gauges.remaining
    is_blocked = state.status is Status.BLOCKED
    return {
        "node": board.owner,
        "name": link.name,
        "vhost": link.vhost,
        "type": "dynamic",
        "state": BLOCKED if is_blocked else shovel_state(state),  # the plugin counts such a one as running
        "timestamp": _time(entry.since),
        "src_uri": shown_uri(gauges.uri, link.uris) or "",
        **(_of_shovel(link, gauges) if isinstance(link, ShovelLink) else {}),
        "forwarded": entry.meter.forwarded,
        "remaining": UNLIMITED if remaining is None else remaining,
        "remaining_unacked": UNLIMITED if remaining is None else max(0, remaining - gauges.in_flight),
        "pending": 0,  # what can't be published now is left at the source
        "blocked_status": BLOCKED if is_blocked else "running",
        **({"reason": state.error} if state.error else {}),
    }


def _of_shovel(link: ShovelLink, gauges: Gauges) -> dict[str, str]:
    """The two ends of a shovel, by the keys of its definition with underscores."""
    keys = {**link.shovel.source.keys, **link.shovel.destination.keys}
    uri = shown_uri(gauges.destination, link.shovel.destination_uris) or ""
    are_local = {"src": link.shovel.source_is_local, "dest": link.shovel.destination_is_local}
    protocols = {
        f"{end}_protocol": LOCAL if is_local else AMQP10 if f"{end}-address" in keys else AMQP091
        for end, is_local in are_local.items()
    }
    return {"dest_uri": uri} | protocols | {key.replace("-", "_"): keys[key] for key in keys}


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
