"""The last changes of status of all links together, for `/api/transitions`; also of links that are gone."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from agent.core.export_event import Reason
from agent.core.links.lifecycle import Status
from agent.core.model import Link
from agent.status.times import rfc3339

KEPT: Final = 2_000  # half a megabyte; an outage of a thousand links, and that it ended


class Change(NamedTuple):
    """`status` is None where the link is gone, `previous` where it is new."""

    seq: int
    at: float
    link: Link
    cluster: str | None
    status: Status | None
    previous: Status | None
    reason: Reason
    error: str


class Recent:
    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=KEPT)
        self._seq = 0

    def note(
        self,
        at: float,
        link: Link,
        *,
        cluster: str | None,
        status: Status | None,
        previous: Status | None,
        reason: Reason,
        error: str,
    ) -> None:
        self._seq += 1
        self._changes.append(Change(self._seq, at, link, cluster, status, previous, reason, error))

    def after(self, seq: int) -> list[Change]:
        """Those with a greater number, oldest first. The numbers begin again with each process."""
        missing = min(len(self._changes), self._seq - seq) if seq <= self._seq else len(self._changes)
        return list(self._changes)[len(self._changes) - missing :] if missing else []


def change_view(change: Change) -> dict[str, Any]:
    link = change.link
    return {
        "seq": change.seq,
        "at": rfc3339(change.at),
        "link": link.id,
        "kind": link.kind,
        "vhost": link.vhost,
        "name": link.name,
        "upstream": link.upstream,
        "upstream_cluster": change.cluster,
        "status": change.status,
        "previous": change.previous,
        "reason": change.reason,
        "error": change.error or None,
    }
