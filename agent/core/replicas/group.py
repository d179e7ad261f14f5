"""The other replicas of a group, as a replica knows them from their reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from agent.core.replicas.messages import Report
from agent.core.replicas.slots import slot_of

SILENCE: Final = 7.0
"""Seconds after which a replica that reports nothing is taken for gone. Its slots go to others long before that."""
MOST_MEMBERS: Final = 20
MOST_LINKS: Final = 200_000  # of all members together


@dataclass(frozen=True, slots=True)
class AgentOfGroup:
    name: str
    slots: frozenset[int]
    links: frozenset[str]
    heard: float
    has_said_links: bool = True  # otherwise `links` are only not known yet
    is_suspect: bool = False  # it lost a slot that it hadn't given up: it is dead, or cut off from the broker


@dataclass(slots=True)
class AgentGroup:
    """The other agents of the group; a slot belongs to the one that reported it last."""

    members: dict[str, AgentOfGroup] = field(default_factory=dict)

    def hear(self, report: Report, now: float) -> bool:
        """Apply a report; True if anything in it is new."""
        before = self.members.get(report.replica)
        if before is None and (len(self.members) >= MOST_MEMBERS or self._has_too_many(report)):
            return False
        links = report.links if report.links is not None else before.links if before else frozenset[str]()
        has_said_links = report.links is not None or (before is not None and before.has_said_links)
        member = self.members[report.replica] = AgentOfGroup(report.name, report.slots, links, now, has_said_links)
        if before is not None and replace(before, heard=now) == member:
            return False
        for replica in self.members.keys() - {report.replica}:
            self._take_from(replica, report.slots)
        return True

    def _has_too_many(self, report: Report) -> bool:
        known = sum(len(member.links) for member in self.members.values())
        return known + len(report.links or ()) > MOST_LINKS

    def take(self, slots: Collection[int]) -> None:
        """Note that this agent holds the slots now. Members that held one of them are suspect."""
        taken = frozenset(slots)
        for replica, member in tuple(self.members.items()):
            if not member.slots.isdisjoint(taken):
                self._take_from(replica, taken)
                self.members[replica] = replace(self.members[replica], is_suspect=True)

    def knows_links_of(self, replica: str) -> bool:
        member = self.members.get(replica)
        return member is not None and member.has_said_links

    @property
    def able(self) -> Mapping[str, AgentOfGroup]:
        """The members that are known to be alive."""
        return {replica: member for replica, member in self.members.items() if not member.is_suspect}

    def _take_from(self, replica: str, slots: frozenset[int]) -> None:
        member = self.members[replica]
        if not member.slots.isdisjoint(slots):
            self.members[replica] = replace(member, slots=member.slots - slots)

    def leave(self, replica: str) -> bool:
        return self.members.pop(replica, None) is not None

    def excuse(self, now: float) -> None:
        """Restart the time of silence of all members: they could not report."""
        self.members = {replica: replace(member, heard=now) for replica, member in self.members.items()}

    def expire(self, now: float) -> bool:
        """Forget members that have been silent for too long; True if there were any."""
        gone = [replica for replica, member in self.members.items() if now - member.heard > SILENCE]
        for replica in gone:
            del self.members[replica]
        return bool(gone)

    def holder(self, slot: int) -> AgentOfGroup | None:
        replica = self.holder_id(slot)
        return None if replica is None else self.members[replica]

    def holder_id(self, slot: int) -> str | None:
        return next((replica for replica, member in self.members.items() if slot in member.slots), None)

    def weights(self, links: Iterable[str]) -> Mapping[int, int]:
        """The number of links in each slot, of those that this agent or others know."""
        known = set(links).union(*(member.links for member in self.members.values()))
        return Counter(slot_of(link) for link in known)

    def chosen(self, link: str, *, ours: str) -> str:
        """The replica that runs a link that the holder of its slot doesn't know: of those that know it, always the same
        one."""
        able = [ours, *(replica for replica, member in self.able.items() if link in member.links)]
        return min(able, key=lambda replica: sha256(f"{replica} {link}".encode()).digest())
