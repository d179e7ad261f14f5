"""Outages of a link. A trouble that comes and goes is a single outage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from agent.core.links.lifecycle import Status
from agent.core.status.causes import DOWN
from agent.core.status.failure_kinds import KINDS, cause_of, outage_of
from agent.errors import Failure, FailureKind, Side

STEADY: Final = 60.0  # seconds for which a link has to run, for its trouble to be over
OFTEN: Final = 3  # times within such pauses
Kind = tuple[bool, FailureKind]
"""True for the broker that messages go to, and the kind of outage."""


def kind_of(failure: Failure) -> Kind:
    return failure.side is Side.DOWNSTREAM, outage_of(cause_of(failure))


@dataclass(frozen=True, slots=True)
class LinkOutage:
    """One trouble, from when it came first. `began`: since when it lasts, apart from attempts that failed."""

    kind: Kind
    failure: Failure
    error: str
    first: float
    began: float
    came: float
    times: int = 1
    ended: float = 0.0

    def recurs(self, now: float, since: float) -> bool:
        return self.times >= OFTEN and KINDS[self.kind[1]].may_recur and now - since < STEADY


@dataclass(slots=True)
class OutageTracker:
    """The outages of one link. A trouble that was over for less than a minute goes on."""

    _present: LinkOutage | None = None
    _past: dict[Kind, LinkOutage] = field(default_factory=dict)
    _has_run: bool = False  # since the last trouble
    _has_worked: bool = False

    def update(self, now: float, status: Status, failure: Failure | None, error: str, *, worked: bool) -> None:
        """`worked`: the link has just ceased to run, and that run was more than an attempt."""
        self._has_worked = self._has_worked or worked
        self._has_run = self._has_run or status is Status.RUNNING
        kind, present = None if failure is None else kind_of(failure), self._present
        if present is not None and present.kind != kind:
            self._past[present.kind], self._present = replace(present, ended=now), None
        if kind is None or failure is None:
            return
        if present is not None and present.kind == kind:
            self._present = replace(present, failure=failure, error=error)
        else:
            self._present = self._continued(LinkOutage(kind, failure, error, now, now, now), status)
        self._has_run = self._has_worked = False
        self._past = {each.kind: each for each in self._past.values() if now - each.ended < STEADY}

    def _continued(self, new: LinkOutage, status: Status) -> LinkOutage:
        """The new outage, as part of a former one of the same kind if that ended within a minute."""
        former = self._past.pop(new.kind, None)
        if former is None or new.came - former.ended >= STEADY:
            return new
        was_over = self._has_worked or (self._has_run and status not in DOWN)
        return replace(
            new, first=former.first, began=new.came if was_over else former.began, times=former.times + self._has_run
        )

    def since(self, now: float) -> float | None:
        """The time since which it has its trouble; None where it has none now."""
        present = self._present
        if present is None:
            return None
        return present.first if present.recurs(now, present.came) else present.began

    def recurring(self, now: float) -> LinkOutage | None:
        """The trouble that comes again and again, now or within the last minute."""
        if self._present is not None:
            return self._present if self._present.recurs(now, self._present.came) else None
        found = [each for each in self._past.values() if each.recurs(now, each.ended)]
        return max(found, key=lambda each: each.ended, default=None)
