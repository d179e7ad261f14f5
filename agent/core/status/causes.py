"""Links in trouble → causes, the most important first, and one sentence about the whole.

Why: docs/decisions/0040-failures-are-values.md
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from agent.core.links.lag import NO_LAG, LagDescription
from agent.core.links.lifecycle import Level, Status
from agent.core.model import LinkKind
from agent.core.permissions import Need
from agent.core.status.acknowledgements import Acknowledgement
from agent.core.status.advice import advice
from agent.core.status.failure_kinds import CAUSES, DELETED, KINDS, cause_of, outage_of
from agent.core.text import counted, in_words, waiting_text
from agent.errors import Failure, FailureKind, Side

DOWN: Final = frozenset({Status.INVALID, Status.BACKOFF})
DEGRADED: Final = frozenset({Status.BLOCKED, Status.STALLED})
_DOWNSTREAM: Final = "downstream"
_UPSTREAM: Final = "upstream"
_DESTINATION: Final = "destination"  # of a shovel, where it isn't the downstream
_AGENT: Final = "agent"  # itself
SIDES: Final = (_DOWNSTREAM, _UPSTREAM, _DESTINATION, _AGENT)
MOST_NAMED: Final = 3
TOGETHER: Final = 60.0  # seconds in which what began counts as equally recent
FLOWING: Final = 3_600.0  # seconds before a trouble within which a message has to have flowed
_NOT_ACTIVE: Final = frozenset(
    {Status.PAUSED, Status.STANDBY, Status.TERMINATED, Status.STOPPING, Status.REMOVING}
)  # they aren't expected to move messages


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """`failure` and `error` are of its status, or of the trouble that recurs. `waiting` is the backlog where it is
    known, `waited_last` what it was when it was last known. `last_confirm` and `ran_until` are when the link last moved
    a message and when it last ceased to run, as far as this agent knows."""

    id: str
    status: Status
    failure: Failure | None
    error: str
    upstream: str
    since: float
    last_confirm: float | None = None
    ran_until: float | None = None
    waiting: int | None = None
    waited_last: int | None = None
    is_forgotten: bool = False  # paused for so long that nobody may remember it
    lag: LagDescription = NO_LAG  # how far behind it is and how that goes on, while that is critical
    behind_since: float | None = None  # since when it has been further behind than `lag-critical` allows
    is_refused: bool = False  # messages wait that its destination refused
    is_from_downstream: bool = False  # rather than from another broker
    destination: str = ""  # the broker that its messages go to, unless that is the downstream
    destination_vhost: str = ""
    trouble_since: float | None = None  # since when it has this trouble, where that isn't when its status changed
    recurs: bool = False  # its trouble came several times within minutes, and may be over for the moment
    vhost: str = ""
    name: str = ""
    deleted: LinkKind | None = None  # its exchange or queue was, downstream, while messages flowed
    acknowledged: Acknowledgement | None = None  # as long as it lasts; its link may have another trouble now

    @property
    def is_behind(self) -> bool:
        """True where no other trouble explains that it is behind. Its error then says why, where that is known."""
        has_other = self.recurs or self.status in DOWN | DEGRADED | _NOT_ACTIVE
        return self.behind_since is not None and not has_other

    @property
    def in_trouble_since(self) -> float:
        """The time since when the link hasn't run: one that is down has several statuses in turn. If it is behind, or
        its trouble recurs, the start of that."""
        if self.is_behind or self.recurs:
            return self.blamed_since
        return began(self.since, self.ran_until)

    @property
    def blamed_since(self) -> float:
        """Start of its present trouble: it may have had others before without running meanwhile."""
        found = self.behind_since if self.is_behind else self.trouble_since
        return self.since if found is None else found

    @property
    def was_flowing(self) -> bool:
        """True if messages flowed shortly before the trouble began: this is an incident, not an old mistake."""
        return was_flowing(self.last_confirm, self.in_trouble_since)

    @property
    def needs_somebody(self) -> bool:
        is_deleted = self.deleted is not None
        return stands_still(self.status) or self.is_forgotten or self.is_behind or self.recurs or is_deleted


def began(since: float, ran_until: float | None) -> float:
    """Start of the trouble of a link that has its status since `since`: it may have had others since it ran."""
    return since if ran_until is None else min(since, ran_until)


def was_flowing(last_confirm: float | None, at: float) -> bool:
    return last_confirm is not None and last_confirm >= at - FLOWING


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """Messages that wait; `is_exact` is false where the number is old, or unknown for some links."""

    messages: int
    is_exact: bool

    def __str__(self) -> str:
        return waiting_text(self.messages, "upstream", is_exact=self.is_exact)


@dataclass(frozen=True, slots=True)
class Cause:
    """One broker and one kind of trouble, with the links that it stops. `error` is that of one of them."""

    id: str  # eight hex digits, the same for as long as its broker is called the same
    side: str  # downstream | upstream | destination | agent
    broker: str
    trouble: FailureKind
    since: float
    links: tuple[str, ...]
    names: tuple[str, ...]  # of the few that have it for the shortest time
    were_flowing: int
    waiting: WaitingMessages
    error: str
    failure: Failure | None
    advice: str
    recurs: bool = False
    acknowledged: Acknowledgement | None = None


class CauseKey(NamedTuple):
    """Links with the same key have one cause. `account` is a user and a vhost, where a permission is missing."""

    side: str  # empty for another broker: it is one cause, whether links come from there or go there
    broker: str
    kind: FailureKind
    account: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        text = "\0".join((self.side, self.broker, self.kind, *self.account))
        return sha256(text.encode(errors="replace")).hexdigest()[:8]


def causes_of(links: Iterable[LinkFacts], *, downstream: str) -> tuple[Cause, ...]:
    """The causes, ranked by whether nobody has acknowledged them, whether messages were flowing, whether links are
    connected and stand still, roughly how many links they stop (to a power of ten: what is new must not hide behind
    what somebody works on already), and how recent."""
    found: dict[CauseKey, list[LinkFacts]] = defaultdict(list)
    for link in links:
        if link.needs_somebody:
            found[_key(link, downstream)].append(link)
    return tuple(sorted((_cause(key, members) for key, members in found.items()), key=_rank))


def advice_for(
    link: LinkFacts, others: Iterable[LinkFacts] = (), *, downstream: str, needs: Sequence[Need] = ()
) -> str:
    """Advice of its cause, about its own error; empty where there is nothing to do. One command grants what the user
    lacks for all `others` of that cause, because a second one would take back what the first one granted."""
    if not link.needs_somebody and link.status is not Status.PAUSED:
        return ""
    key = _key(link, downstream)
    alike = [link, *(other for other in others if other.needs_somebody and _key(other, downstream) == key)]
    return _advice(key, alike, (link.id,), needs=needs, lag=link.lag, vhosts=_held_up_in([link]))


def _advice(
    key: CauseKey,
    links: Sequence[LinkFacts],
    ids: Sequence[str],
    *,
    needs: Sequence[Need] = (),
    lag: LagDescription,
    vhosts: Sequence[str],
) -> str:
    errors = [link.error for link in links]
    failures = [link.failure for link in links if link.failure is not None]
    return advice(key.kind, key.broker, ids, errors=errors, failures=failures, needs=needs, lag=lag, vhosts=vhosts)


def _held_up_in(links: Iterable[LinkFacts]) -> tuple[str, ...]:
    """The vhosts that they can't get their messages into."""
    found = (link for link in links if link.failure is not None and link.failure.side is Side.DOWNSTREAM)
    return tuple(dict.fromkeys(link.destination_vhost for link in found))


def stands_still(status: Status) -> bool:
    return status in DOWN | DEGRADED


def blamed(link: LinkFacts) -> tuple[str, FailureKind]:
    """The side on which the cause of a link's trouble is, and the kind of trouble."""
    if link.deleted is not None:
        kind = DELETED[link.deleted]
    elif link.is_behind:
        kind = FailureKind.BEHIND
    elif link.failure is None:
        kind = FailureKind.PAUSED
    else:
        kind = cause_of(link.failure)
        if link.recurs:
            kind = outage_of(kind)
    return _side(link), kind


def _key(link: LinkFacts, downstream: str) -> CauseKey:
    side, kind = blamed(link)
    account = (link.failure.user, link.failure.vhost) if kind is FailureKind.PERMISSION and link.failure else ()
    side = side if side in {_DOWNSTREAM, _AGENT} else ""
    return CauseKey(side, broker_of(link, downstream=downstream), kind, account)


def broker_of(link: LinkFacts, *, downstream: str) -> str:
    """The broker that its trouble is blamed on."""
    names = {_AGENT: "this agent", _DOWNSTREAM: downstream, _DESTINATION: link.destination, _UPSTREAM: link.upstream}
    return names[_side(link)]


def _side(link: LinkFacts) -> str:
    """The side that the trouble is on. A shovel may go to another broker than the downstream, and come from the
    downstream."""
    if link.deleted is not None:
        return _DOWNSTREAM
    failure = None if link.is_behind else link.failure
    if failure is not None and failure.kind is FailureKind.STOOD_STILL:
        return _AGENT
    is_at_destination = link.is_refused if link.is_behind else failure is not None and failure.side is Side.DOWNSTREAM
    if is_at_destination:
        return _DESTINATION if link.destination else _DOWNSTREAM
    return _DOWNSTREAM if link.is_from_downstream else _UPSTREAM


def _cause(key: CauseKey, members: Sequence[LinkFacts]) -> Cause:
    newest = sorted(members, key=lambda link: link.blamed_since, reverse=True)
    error = Counter(link.error for link in newest).most_common(1)[0][0]
    shown_first = sorted(newest, key=lambda link: link.error != error)
    lag = min((link.lag for link in members), key=lambda each: (not each.text, each.is_catching_up))  # a bad one
    links = tuple(link.id for link in members)
    comes_from_there = any(_side(link) == _UPSTREAM for link in members)
    return Cause(
        id=key.id,
        side=key.side or (_UPSTREAM if comes_from_there else _DESTINATION),
        broker=key.broker,
        trouble=key.kind,
        since=min(link.blamed_since for link in members),
        links=links,
        names=tuple(dict.fromkeys(f"{link.vhost}/{link.name}" for link in newest))[:MOST_NAMED],
        were_flowing=sum(link.was_flowing for link in members),
        waiting=waiting_of(members),
        error=error or lag.text,
        failure=shown_first[0].failure,
        advice=_advice(key, shown_first, links, lag=lag, vhosts=_held_up_in(members)),
        recurs=any(link.recurs for link in members),
        acknowledged=_acknowledgement(members),
    )


def _acknowledgement(members: Sequence[LinkFacts]) -> Acknowledgement | None:
    """The last acknowledgement, if all links have one for their present trouble: a link that stands still since then is
    news, and so is another trouble."""
    found = [
        link.acknowledged
        for link in members
        if link.acknowledged is not None and _is_known(link.acknowledged, *blamed(link))
    ]
    return max(found, key=lambda each: each.at) if len(found) == len(members) else None


def _is_known(known: Acknowledgement, side: str, trouble: FailureKind) -> bool:
    """True if the acknowledgement is about this trouble. A broker that restarts is unreachable, silent and lost in
    turn: that is one trouble."""
    alike = {kind for kind in CAUSES if outage_of(kind) is outage_of(trouble)}
    return known.side == side and known.trouble in alike  # another agent may have written any text


def waiting_of(links: Iterable[LinkFacts]) -> WaitingMessages:
    links = tuple(links)
    known = sum((link.waited_last or 0) if link.waiting is None else link.waiting for link in links)
    return WaitingMessages(known, all(link.waiting is not None for link in links))


def _rank(cause: Cause) -> tuple[bool, bool, int, int, int, int, int, str]:
    return (
        cause.acknowledged is not None,
        cause.trouble is FailureKind.PAUSED,
        _urgency(cause),
        -len(str(len(cause.links))),
        -int(cause.since // TOGETHER),
        -len(cause.links),
        -cause.waiting.messages,
        cause.broker,
    )


def _urgency(cause: Cause) -> int:
    """The rank of a cause by its effect on messages. An agent that was started in the middle of an alarm doesn't know
    whether messages flowed, but its links are connected."""
    if cause.were_flowing:
        return 0
    return 1 if KINDS[cause.trouble].links_are in DEGRADED else 2


def level_of(links: Sequence[LinkFacts]) -> Level:
    """Down where no link that should move messages can; degraded by one that somebody seems to have forgotten, too.
    Nothing is known of a link that starts: an upstream that doesn't answer keeps it so until its deadline."""
    expected = [link for link in links if link.status not in _NOT_ACTIVE]
    affected = sum(stands_still(link.status) for link in expected)
    if not affected:
        is_unsteady = any(link.is_forgotten or link.is_behind or link.recurs or link.deleted for link in links)
        if is_unsteady:
            return Level.DEGRADED
        return Level.STARTING if any(link.status is Status.STARTING for link in expected) else Level.FINE
    return Level.DOWN if affected == len(expected) else Level.DEGRADED


def verdict(causes: Sequence[Cause], links: Sequence[LinkFacts], *, now: float) -> str:
    """The most important cause as a sentence; without causes, how many links are in which state."""
    if not causes:
        by_status = Counter(link.status for link in links)
        return ", ".join(
            [counted(len(links), "link"), *(f"{number:,} {status}" for status, number in by_status.items())]
        )
    first = causes[0]
    found = f"{first.broker} ({first.side}): {headline(first, len(links), now=now)}"
    if first.acknowledged is not None:
        found += f", acknowledged by {first.acknowledged.by or 'somebody'}"
    more = len(causes) - 1
    return f"{found}; {counted(more, 'more cause')}" if more else found


def headline(cause: Cause, total: int, *, now: float) -> str:
    """A cause in one line, without the broker."""
    how = "interrupted" if cause.recurs else KINDS[cause.trouble].links_are
    stopped = f"{len(cause.links):,} of {counted(total, 'link')} {how}"
    waits = f", {cause.waiting}" if cause.waiting.messages else ""
    again = " again and again" if cause.recurs else ""
    return f"{cause.trouble}{again} for {in_words(now - cause.since)}, {stopped}{waits}"
