"""The reason for a link's change of status, as one value of a fixed list."""

from __future__ import annotations

from typing import Final

from agent.core.export_event import Reason
from agent.core.links.lifecycle import LinkState, Status
from agent.core.status.failure_kinds import KINDS
from agent.errors import Failure


def reason_of(before: LinkState | None, after: LinkState) -> Reason:
    """The reason for the change from one status to the next; without `before` the link is new."""
    if before is None:
        return Reason.APPEARED
    match after.status:
        case Status.STARTING:
            return _RELEASED.get(before.status, Reason.RESTARTED)
        case Status.RUNNING:
            return _RECOVERED.get(before.status, Reason.OPENED)
        case Status.BLOCKED if after.failure is not None:
            return Reason(f"{after.failure.side}_blocked")
        case Status.STOPPING:
            return Reason.REMOVED if not after.is_stopped else Reason.STOPPED
        case Status.BACKOFF | Status.INVALID if after.broken is not None and after.failure is not None:
            return Reason(f"{after.failure.side}_{word_of(after.failure)}")
        case status:
            return _REACHED[status]


def word_of(failure: Failure) -> str:
    """The `reason` of a failure in metrics, and the second half of that in events: few enough to be counted."""
    return "refused" if failure.is_permanent else KINDS[failure.kind].word


WORDS: Final = ("unreachable", "refused", "lost", "closed", "heartbeat", "standstill", "other")

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
