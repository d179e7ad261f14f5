"""The reason for a link's change of status, as one value of a fixed list."""

from __future__ import annotations

from typing import Final

from agent.core.export_event import Reason
from agent.core.links.lifecycle import LinkState, Status
from agent.errors import Failure, FailureKind


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
    return "refused" if failure.is_permanent else _WORDS.get(failure.kind, "other")


_WORDS: Final = {
    FailureKind.UNREACHABLE: "unreachable",
    FailureKind.UNRESOLVED: "unreachable",
    FailureKind.NOT_ANSWERING: "unreachable",
    FailureKind.LOGIN: "unreachable",  # by one of several addresses; the others may be there again soon
    FailureKind.PERMISSION: "unreachable",
    FailureKind.NO_VHOST: "unreachable",
    FailureKind.LOST: "lost",
    FailureKind.TLS: "lost",
    FailureKind.CLOSED: "closed",
    FailureKind.NOT_FOUND: "closed",
    FailureKind.HEARTBEATS_MISSED: "heartbeat",
    FailureKind.STOOD_STILL: "standstill",
}
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
