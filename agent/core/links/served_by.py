"""The others that serve a link: the agent waits for the last of them to end."""

from __future__ import annotations

from enum import StrEnum

from agent.core.links.lifecycle import NO_LEASE, Event, Signal, StandAside
from agent.core.replicas.sharing import Elsewhere
from agent.errors import Failure


class Other(StrEnum):
    PLUGIN = "the federation plugin of the downstream"
    CONSUMER = "a consumer of the upstream queue"
    REPLICA = "another agent of the group"


class ServedBy:
    """The others that serve one link, each with the reason that an operator is shown."""

    __slots__ = ("_reasons", "_unserved", "owner")

    def __init__(self) -> None:
        self.owner: str | None = None  # the agent of the group that runs it, unless that is this one
        self._reasons: dict[Other, str] = {}
        self._unserved: Failure | None = None  # why that agent doesn't serve it, as far as is known

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def __contains__(self, other: Other) -> bool:
        return other in self._reasons

    def begins(self, other: Other, reason: str) -> StandAside:
        self._reasons[other] = reason
        return self._standing_aside

    def ends(self, other: Other) -> Event | None:
        """Note that `other` doesn't serve the link any more; None if it didn't."""
        if self._reasons.pop(other, None) is None:
            return None
        return self._standing_aside if self._reasons else Signal.TAKE_OVER

    def runs_elsewhere(self, verdict: Elsewhere) -> StandAside | None:
        """Note that another agent of the group runs the link, or is to run it; None if that was known. A consumer is
        forgotten, as it may be that agent's."""
        self.owner = verdict.owner
        self._unserved = None if verdict.is_served else verdict.failure or NO_LEASE
        if self._reasons.get(Other.REPLICA) == verdict.reason:
            return None
        self._reasons.pop(Other.CONSUMER, None)
        return self.begins(Other.REPLICA, verdict.reason)

    def runs_here(self) -> Event | None:
        """Note that no other agent of the group runs the link; None if that was known."""
        self.owner = self._unserved = None
        return self.ends(Other.REPLICA)

    @property
    def _standing_aside(self) -> StandAside:
        unserved = self._unserved if self._reasons.keys() == {Other.REPLICA} else None
        return StandAside("; ".join(self._reasons.values()), unserved)
