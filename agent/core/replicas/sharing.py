"""One replica's view of its group, from the reports of the others, and the decisions that follow: which links it runs,
takes and gives up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from agent.core.model import Link, LinkKind
from agent.core.replicas.messages import Report
from agent.core.replicas.slots import SLOTS, Held, has_room, load_of, slot_of, surplus_of_empty, surpluses
from agent.errors import Failure

LEASE: Final = 1.7
"""Seconds without a word of the broker after which a replica stops using the connections of its links."""
SURELY_ENDED: Final = LEASE + 0.2
"""Seconds from when on a replica that lost a slot has noticed it, even if only the broker knows that its connection is
gone. Consumers of exchange links upstream are exclusive, so those needn't wait."""
UNDECIDED_FOR: Final = 3.0
"""Seconds after the lease began in which tokens and reports may still be on their way."""
STRANGE_FOR: Final = 5.0
"""A link that the holder of its slot doesn't know may have been defined just now."""
SETTLED: Final = 0.5  # nothing has changed for so long: shares may be compared
AT_ONCE: Final = 4  # slots that are handed over
AGAIN: Final = 3.0  # a slot that was passed on and comes back within this time is taken
TRIED_FOR: Final = 600.0
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
    has_reported_links: bool = True  # otherwise `links` are only not known yet
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
        has_reported_links = report.links is not None or (before is not None and before.has_reported_links)
        member = self.members[report.replica] = AgentOfGroup(report.name, report.slots, links, now, has_reported_links)
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
        return member is not None and member.has_reported_links

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


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The reason why a link doesn't run here, as its error shows it."""

    reason: str
    owner: str | None = None
    is_served: bool = True  # false where no agent is known to run it
    failure: Failure | None = None  # why not, where that is known


Verdict = Elsewhere | bool | None
"""The decision whether this replica runs a link: True; the reason why not; or None as long as it isn't known."""


@dataclass(slots=True)
class Sharing:
    """The state of sharing. `leased_at` is None while there is no lease: without a connection to the broker no
    other replica can be asked. `failure` is why there is none, `facts` are those of it; `refusal` is why there
    will be none."""

    replica: str
    others: AgentGroup = field(default_factory=AgentGroup)
    held: dict[int, Held] = field(default_factory=dict)
    leased_at: float | None = None
    failure: str = ""
    facts: Failure | None = None
    refusal: str = ""
    changed_at: float = 0.0
    _discards_messages: bool = False
    _hears_from: float = 0.0
    _was_leased: bool = False
    _has_listened: bool = False  # for so long that others would have been heard
    _ran: frozenset[int] = frozenset()  # held when the lease was lost last
    _kept: frozenset[int] = frozenset()  # held before, while it was alone: its links go on
    _known_since: dict[str, float] = field(default_factory=dict)
    _passed: dict[int, float] = field(default_factory=dict)
    _weights: Mapping[int, int] | None = None

    @property
    def links(self) -> Set[str]:
        return self._known_since.keys()

    @property
    def weights(self) -> Mapping[int, int]:
        if self._weights is None:
            self._weights = self.others.weights(self.links)
        return self._weights

    def listen(self, *, may_publish: bool, now: float) -> bool:
        """Note whether the broker takes messages. While it doesn't, no replica can report, so none counts as silent.
        True if this has just ended: then the others are to be asked."""
        has_ended = may_publish and self._discards_messages
        self._discards_messages = not may_publish
        if self._discards_messages:
            self._hears_from = now + UNDECIDED_FOR
            self.others.excuse(now)
        is_settled = self.leased_at is not None and now - self.leased_at >= UNDECIDED_FOR
        self._has_listened |= is_settled and self.hears_others(now)
        return has_ended

    def hears_others(self, now: float) -> bool:
        """True if a replica that is silent isn't there: it could report, and had time to."""
        return not self._discards_messages and now >= self._hears_from

    @property
    def is_alone(self) -> bool:
        return not self.others.able

    def holds_all(self, now: float) -> bool:
        """True if this replica holds all slots, and time alone changes no verdict from now on."""
        waiting = (held for held in self.held.values() if held.waits_for is not None)
        return len(self.held) == SLOTS and all(now >= held.taken_at + SURELY_ENDED + UNDECIDED_FOR for held in waiting)

    @property
    def shown(self) -> frozenset[int]:
        """The slots that it reports to others."""
        return frozenset(slot for slot, held in self.held.items() if not held.is_leaving)

    @property
    def lost(self) -> Iterable[int]:
        """The slots that nobody has reported, such as those whose queue was purged."""
        return (slot for slot in range(SLOTS) if slot not in self.held and self.others.holder(slot) is None)

    def follow(self, links: Iterable[Link], now: float) -> bool:
        """Set the links that are defined now; True if they are others than before."""
        known = {link.id: self._known_since.get(link.id, now) for link in links}
        is_new, self._known_since = known.keys() != self._known_since.keys(), known
        self._weights = None
        return is_new

    # The lease itself

    def begin(self, now: float) -> None:
        self.leased_at, self.failure, self.refusal, self._was_leased = now, "", "", True
        self.facts = None

    def lose(self) -> bool:
        """Note that the lease is gone, or may be. True if others may run now what this replica held; one that is alone
        goes on."""
        held, is_alone = frozenset(self.held), self.is_alone
        self.leased_at = None
        self._kept = self._kept | held if is_alone else frozenset()
        self._ran = held or self._ran
        self.held.clear()
        return bool(held) and not is_alone

    def forget_kept(self, now: float) -> bool:
        """Forget the slots that were held before and didn't come back: another replica has them. True if there were
        any."""
        if not self._kept or self.leased_at is None or now - self.leased_at <= UNDECIDED_FOR:
            return False
        self._kept = frozenset()
        return True

    # Who runs a link

    def verdict(self, link: str, kind: LinkKind, now: float) -> Verdict:
        slot = slot_of(link)
        held = self.held.get(slot)
        if held is not None:
            return self._held_here(held, kind, now)
        if self.refusal:
            return True
        found = self.others.holder(slot)
        if found is not None and self.leased_at is not None:
            return self._held_by(found, link, kind, now)
        if slot in self._kept:
            return True
        if self.leased_at is None:
            return self._without_lease(kind, slot)
        if now - self.leased_at < UNDECIDED_FOR:
            return None
        if self.is_alone and self.hears_others(now):  # a broker that delivers no tokens is no reason to run nothing
            return True
        return Elsewhere("no agent of the group has taken this link yet", is_served=False)

    def _held_here(self, held: Held, kind: LinkKind, now: float) -> Verdict:
        if held.is_leaving:
            return Elsewhere("handed over to another agent of the group")
        if kind is not LinkKind.EXCHANGE and held.waits_for is not None and now < held.taken_at + SURELY_ENDED:
            return Elsewhere("another agent ran this link, and may not know yet that it has lost it", is_served=False)
        return True

    def _without_lease(self, kind: LinkKind, slot: int) -> Verdict:
        """The verdict while there is no lease. A link of exchanges that ran here may be tried: its consumer upstream is
        exclusive, whoever else runs it. Others wait where no report could have arrived yet, as during an alarm."""
        may_try = kind is LinkKind.EXCHANGE or self._has_listened
        if self.is_alone and may_try and (self.failure or self._was_leased):
            return True
        if not self.failure:
            return Elsewhere("waits for its lease", is_served=False) if self._was_leased else None
        if kind is LinkKind.EXCHANGE and slot in self._ran:
            return True
        return Elsewhere(f"waits for its lease: {self.failure}", is_served=False, failure=self.facts)

    def _held_by(self, holder: AgentOfGroup, link: str, kind: LinkKind, now: float) -> Verdict:
        """The verdict where another agent holds the slot. Agents of one group may have different configurations: a link
        that the holder doesn't know is run by one of those that do."""
        if link in holder.links:
            return Elsewhere(f"agent {holder.name} runs this link", holder.name)
        if not holder.has_reported_links:
            return Elsewhere(f"agent {holder.name} has yet to say which links it knows", holder.name)
        if self._may_share_links(holder, kind) and now - self._known_since.get(link, now) < STRANGE_FOR:
            return Elsewhere(f"agent {holder.name} has yet to know this link", holder.name)
        chosen = self.others.chosen(link, ours=self.replica)
        if chosen == self.replica:
            return True
        name = self.others.members[chosen].name
        return Elsewhere(f"agent {name} runs this link", name)

    def _may_share_links(self, holder: AgentOfGroup, kind: LinkKind) -> bool:
        """True if the holder may soon know the links that this replica knows. One that has none may be about to get
        them; where brokers refuse a second consumer, that needn't be waited for."""
        is_new = not holder.links and kind is not LinkKind.EXCHANGE
        return is_new or not holder.links.isdisjoint(self.links)

    # What arrives

    def hear(self, report: Report, now: float) -> bool:
        """Apply a report; True if it changes anything."""
        is_new = self.others.hear(report, now)
        is_waited_for = self._has_ended(report.replica, kept=report.slots)
        return self._noted(is_new or is_waited_for, now)

    def leave(self, replica: str, now: float) -> bool:
        is_waited_for = self._has_ended(replica, kept=frozenset())
        return self._noted(self.others.leave(replica) or is_waited_for, now)

    def _has_ended(self, replica: str, *, kept: frozenset[int]) -> bool:
        """Note which slots a replica still holds; True if a slot that it held before needn't wait for it any more."""
        ended = [held for slot, held in self.held.items() if held.waits_for == replica and slot not in kept]
        for held in ended:
            held.waits_for = None
        return bool(ended)

    def expire(self, now: float) -> bool:
        return self._noted(self.others.expire(now), now)

    def _noted(self, is_new: bool, now: float) -> bool:
        if is_new:
            self.changed_at, self._weights = now, None
        return is_new

    def take(self, arrived: Mapping[int, Held], now: float, wall: float) -> list[tuple[int, Held]]:
        """Take slots whose tokens have arrived; returns those that are passed on to the next replica."""
        orphans = {slot: former for slot in arrived if (former := self.others.holder_id(slot)) is not None}
        self.others.take(arrived)
        self._weights = None
        passed: list[tuple[int, Held]] = []
        for slot, held in arrived.items():
            if self._takes(slot, held, is_orphan=slot in orphans, now=now, wall=wall):
                self._passed.pop(slot, None)
                self.held[slot] = held
                held.waits_for, held.taken_at = orphans.get(slot), now
            else:
                self._passed[slot] = now
                passed.append((slot, held))
        self.changed_at = now
        return passed

    def _takes(self, slot: int, held: Held, *, is_orphan: bool, now: float, wall: float) -> bool:
        """True if this replica keeps a slot that has arrived. The slots of a replica that died arrive at once, so each
        of the others fills up its share. One that was given up is for the replica that has the least."""
        others = self.others.able
        if not others or now - self._passed.get(slot, now - AGAIN) < AGAIN:
            return True
        tried = _fresh(held.token.tried, wall)
        if tried and len(tried) <= len(others):
            return self.replica not in tried
        weights = self.weights
        if is_orphan or not weights.get(slot, 0):
            return has_room(slot, self.held, weights, replicas=len(others) + 1)
        mine = load_of(self.held, weights).links
        return mine <= min(load_of(each.slots, weights).links for each in others.values())

    # What is given up

    def needless(self, now: float) -> Collection[int]:
        """Slots without links that others should have; they are given at once, since nothing has to be handed over."""
        others = [member.slots for member in self.others.able.values()]
        if now - self.changed_at < SETTLED or not others:
            return ()
        return surplus_of_empty(self.held, others, self.weights)

    def surplus(self, now: float, wall: float) -> list[int]:
        """Slots that others should have: of the replicas that have the most, one gives, and a few at a time."""
        able = self.others.able
        if now - self.changed_at < SETTLED or not able:
            return []
        weights = self.weights
        most = max((load_of(each.slots, weights).links, replica) for replica, each in able.items())
        if (load_of(self.held, weights).links, self.replica) < most:
            return []
        movable = {slot for slot, held in self.held.items() if not _fresh(held.token.tried, wall)}
        since = {slot: held.taken_at for slot, held in self.held.items()}
        others = [each.slots for each in able.values()]
        return surpluses(self.held, others, weights, movable=movable, since=since, most=AT_ONCE)

    def tried(self, slot: int, wall: float) -> Mapping[str, float] | None:
        """The replicas that couldn't run the slot's links, this one included; None if the slot is not to be given up:
        it isn't held, is being given up already, or all others have tried."""
        held = self.held.get(slot)
        if held is None or held.is_leaving or self.is_alone:
            return None
        fresh = _fresh(held.token.tried, wall)
        others = len([name for name in fresh if name != self.replica])
        return None if others >= len(self.others.able) else {**fresh, self.replica: wall}

    def give(self, slots: Iterable[int], now: float) -> list[tuple[int, Held]]:
        given = [(slot, self.held.pop(slot)) for slot in slots if slot in self.held]
        for slot, _ in given:
            self._passed.pop(slot, None)
        self.changed_at = now
        return given


def _fresh(tried: Mapping[str, float], wall: float) -> dict[str, float]:
    return {replica: at for replica, at in tried.items() if abs(wall - at) < TRIED_FOR}
