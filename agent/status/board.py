"""The one place that knows what every link is; whoever runs links writes it, all else only reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from agent.core.lifecycle import LinkState, Status
from agent.core.model import Link, LinkKind


class Meter(Protocol):
    """What a running link counts; read while it runs."""

    forwarded: int
    bytes: int
    redelivered: int
    returned: int
    dropped: dict[str, int]


@dataclass(slots=True)
class Gauges:
    """What is true of a link now and of nothing before."""

    in_flight: int = 0
    bindings: int = 0
    prefetch: int = 0
    upstream_cluster: str | None = None
    note: str = ""


@dataclass(slots=True)
class Entry:
    link: Link
    state: LinkState
    since: float
    meter: Meter
    gauges: Callable[[], Gauges]
    reconnects: int = 0


@dataclass
class Board:
    """`clock` tells seconds since 1970, `owner` is this agent's name."""

    clock: Callable[[], float]
    owner: str
    ready: bool = False
    _entries: dict[str, Entry] = field(default_factory=dict)

    def put(self, link: Link, state: LinkState, meter: Meter, gauges: Callable[[], Gauges]) -> None:
        """A link is there, or its definition is another one."""
        standing = self._entries.get(link.id)
        if standing is None:
            self._entries[link.id] = Entry(link, state, self.clock(), meter, gauges)
        else:
            standing.link = link

    def changed(self, link_id: str, state: LinkState) -> None:
        entry = self._entries.get(link_id)
        if entry is None:
            return
        if state.status is not entry.state.status:
            entry.since = self.clock()
        if state.failure is not None and entry.state.failure is None:
            entry.reconnects += 1
        entry.state = state

    def gone(self, link_id: str) -> None:
        self._entries.pop(link_id, None)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __getitem__(self, link_id: str) -> Entry:
        return self._entries[link_id]

    def __contains__(self, link_id: object) -> bool:
        return link_id in self._entries

    def view(self, entry: Entry) -> dict[str, Any]:
        """One link as `/api/links` tells it."""
        link, state, meter, gauges = entry.link, entry.state, entry.meter, entry.gauges()
        return {
            "id": link.id,
            "kind": link.kind,
            "vhost": link.vhost,
            **_ends(link),
            "upstream": link.upstream,
            "upstream_cluster": gauges.upstream_cluster,
            "uri": link.uris[0].safe if link.uris else None,
            "policy": link.policy,
            "status": state.status,
            "error": state.error or gauges.note or None,
            "since": moment(entry.since),
            "owner": self.owner,
            "forwarded": meter.forwarded,
            "bytes": meter.bytes,
            "redelivered": meter.redelivered,
            "dropped": sum(meter.dropped.values()),
            "quarantined": 0,
            "returned": meter.returned,
            "in_flight": gauges.in_flight,
            "prefetch": gauges.prefetch,
            "bindings": gauges.bindings,
            "reconnects": entry.reconnects,
        }


def _ends(link: Link) -> Mapping[str, str]:
    match link.kind:
        case LinkKind.EXCHANGE:
            return {"exchange": link.name, "upstream_exchange": link.remote_name}
        case LinkKind.QUEUE:
            return {"queue": link.name, "upstream_queue": link.remote_name}
        case LinkKind.SHOVEL:
            return {"name": link.name}


NATIVE_STATUS: Mapping[Status, str] = {
    Status.RUNNING: "running",
    Status.BLOCKED: "running",
    Status.STALLED: "running",
    Status.STARTING: "starting",
    Status.BACKOFF: "error",
    Status.INVALID: "error",
}


def native_view(board: Board, entry: Entry) -> dict[str, Any]:
    """One link as the native management extension tells it."""
    link, state = entry.link, entry.state
    ends = {"type": link.kind, **_ends(link)}
    error = {"error": state.error} if state.error else {}
    return {
        "node": board.owner,
        **ends,
        "uri": link.uris[0].safe if link.uris else "",
        "vhost": link.vhost,
        "upstream": link.upstream,
        "id": link.id,
        "status": NATIVE_STATUS.get(state.status, "shutdown"),
        "timestamp": datetime.fromtimestamp(entry.since, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        **error,
    }


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
