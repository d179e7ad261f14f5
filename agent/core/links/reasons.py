"""Why a link changed its status, as one value of a fixed list."""

from __future__ import annotations

from typing import Final

from agent.core.export_event import Reason
from agent.core.links.lifecycle import LinkState, Status
from agent.errors import Side


def reason_of(before: LinkState | None, after: LinkState) -> Reason:
    """Why it changed from one status to the next; without `before` the link is new."""
    if before is None:
        return Reason.APPEARED
    match after.status:
        case Status.STARTING:
            return _RELEASED.get(before.status, Reason.RESTARTED)
        case Status.RUNNING:
            return _RECOVERED.get(before.status, Reason.OPENED)
        case Status.BLOCKED:
            sides = {block.side for block in after.blocked}
            return Reason.DOWNSTREAM_BLOCKED if Side.DOWNSTREAM in sides else Reason.UPSTREAM_BLOCKED
        case Status.STOPPING:
            return Reason.REMOVED if after.stop is None else Reason.STOPPED
        case Status.BACKOFF | Status.INVALID if after.failure is not None:
            return Reason(f"{after.failure.side}_{after.failure.trouble}")
        case status:
            return _REACHED[status]


_RELEASED: Final = {
    Status.PAUSED: Reason.RESUMED,
    Status.STANDBY: Reason.TAKEN_OVER,
    Status.REMOVING: Reason.WANTED,
    Status.STOPPING: Reason.WANTED,  # it was being removed
}
_RECOVERED: Final = {Status.BLOCKED: Reason.UNBLOCKED, Status.STALLED: Reason.PROGRESSED}
_REACHED: Final = {
    Status.BACKOFF: Reason.DOWNSTREAM_LOST,  # there its lease is, which another agent hasn't taken either
    Status.STALLED: Reason.NO_CONFIRMS,
    Status.PAUSED: Reason.PAUSED,
    Status.STANDBY: Reason.SERVED_ELSEWHERE,
    Status.REMOVING: Reason.UNWANTED,
    Status.TERMINATED: Reason.COMPLETED,
}
