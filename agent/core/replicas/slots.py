"""The slots of a group: the one that a link belongs to, their names at the broker, the token in a slot's queue, and the
share of them that each replica takes.

The replica that receives a slot's token holds the slot. The token carries what the next holder has to know. All
replicas have to agree on slots and names, so the names carry the number of this format: agents with another one don't
meet. A slot weighs as many links as belong to it. Slots without links are shared by their number, so that links which
are defined later are shared from the beginning.

Why: docs/decisions/0050-acknowledged-by-link.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, TypeVar

from agent.core.links.lifecycle import Pause
from agent.core.rules.names import AGENT_PREFIX, LEASE_PREFIX
from agent.core.status import acknowledgements
from agent.core.status.acknowledgements import MOST_REMEMBERED, Acknowledgement

FORMAT: Final = 1
SLOTS: Final = 64
"""Few enough for a broker to hold their queues at no cost, and many enough to share few links evenly."""
LONGEST_GROUP: Final = 150  # bytes of a group's name; a queue's has 255
MOST_BYTES: Final = 4 * 1024 * 1024  # of a message: a thousand links that are paused, with long reasons
MOST_ENTRIES: Final = 10_000
MOST_NUMBER: Final = 2**40  # a token that says more isn't ours

_Known = TypeVar("_Known")


def slot_of(link_id: str) -> int:
    """A link's id is a hash already: any of its digits are as good as the others."""
    return int(link_id, 16) % SLOTS


def _short(group: str) -> str:
    if len(group.encode()) <= LONGEST_GROUP:
        return group
    return sha256(group.encode()).hexdigest()


def lease_queue(group: str, slot: int) -> str:
    return f"{LEASE_PREFIX}{FORMAT} of {_short(group)}, slot {slot}"


def lease_exchange(group: str) -> str:
    """The name of the exchange for tokens; the routing key is the number of the slot."""
    return f"{AGENT_PREFIX}leases {FORMAT} of {_short(group)}"


def exchange(group: str) -> str:
    """The name of the exchange for the reports of a group's replicas."""
    return f"{AGENT_PREFIX}replicas {FORMAT} of {_short(group)}"


def own_queue(group: str, replica: str) -> str:
    """The name of the queue from which one replica receives the messages of the others."""
    return f"{AGENT_PREFIX}replica {FORMAT} of {_short(group)}, {replica}"


def read_message(body: bytes) -> dict[str, Any]:
    """The JSON object in a message, of a replica or with a token. Anybody may publish there: what isn't one of ours
    counts as empty."""
    if len(body) > MOST_BYTES:
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("format") == FORMAT else {}


@dataclass(frozen=True, slots=True)
class Token:
    """The token of a slot. Of several in one queue the one with the highest number counts.

    `paused`: the links that somebody has paused. `tried`: the replicas that couldn't run the slot's links, and when
    they gave it up, in seconds since 1970. `finished`: the links that have done what they were defined for, and what
    that was (`purpose_of`). `acknowledged`: the links whose trouble somebody knows.
    """

    number: int = 0
    paused: Mapping[str, Pause] = field(default_factory=dict)
    tried: Mapping[str, float] = field(default_factory=dict)
    finished: Mapping[str, str] = field(default_factory=dict)
    acknowledged: Mapping[str, Acknowledgement] = field(default_factory=dict)

    def with_paused(self, link: str, pause: Pause | None) -> Token:
        """The same with a link that is paused, or no longer paused."""
        paused = _with(self.paused, link, pause)
        return self if paused is self.paused else replace(self, paused=paused)

    def with_finished(self, link: str, purpose: str | None) -> Token:
        """The same with a link that has done what it was defined for, or is to do it again."""
        finished = _with(self.finished, link, purpose)
        return self if finished is self.finished else replace(self, finished=finished)

    def with_acknowledged(self, links: Mapping[str, Acknowledgement | None]) -> Token:
        """The same with links whose trouble is acknowledged, or no longer acknowledged. Only as many as fit are
        remembered."""
        known = self.acknowledged
        for link, each in links.items():
            if each is None or link in known or len(known) < MOST_REMEMBERED:
                known = _with(known, link, each)
        return self if known == self.acknowledged else replace(self, acknowledged=known)

    def encode(self) -> bytes:
        document = {  # `asdict` of all of it would copy thousands of entries one by one
            "format": FORMAT,
            "number": self.number,
            "paused": {link: asdict(pause) for link, pause in self.paused.items()},
            "tried": dict(self.tried),
            "finished": dict(self.finished),
            "acknowledged": {link: asdict(known) for link, known in self.acknowledged.items()},
        }
        return json.dumps(document).encode()


def _with(known: Mapping[str, _Known], link: str, value: _Known | None) -> Mapping[str, _Known]:
    if known.get(link) == value:
        return known
    others = {each: former for each, former in known.items() if each != link}
    return others if value is None else {**others, link: value}


def read_token(body: bytes) -> Token:
    """The token in a message; one that is no token counts as an empty one."""
    found = read_message(body)
    number = found.get("number")
    return Token(
        number if isinstance(number, int) and 0 <= number <= 2 * MOST_NUMBER else 0,
        _entries(found.get("paused"), Pause.read),
        _entries(found.get("tried"), lambda at: float(at) if _is_number(at) else None),
        _entries(found.get("finished"), lambda what: what if isinstance(what, str) else None),
        _entries(found.get("acknowledged"), acknowledgements.from_value, most=MOST_REMEMBERED),
    )


def _entries(value: object, read: Callable[[Any], _Known | None], *, most: int = MOST_ENTRIES) -> dict[str, _Known]:
    """The usable ones of the first entries of an object."""
    given = tuple(value.items())[:most] if isinstance(value, dict) else ()
    return {name: found for name, each in given if (found := read(each)) is not None}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53


@dataclass(slots=True)
class Held:
    """A slot that this replica holds, by its token."""

    token: Token  # the latest one, which may be on its way
    delivery: int  # of the one that arrived last, which stays unacknowledged for as long as the slot is held
    since: float
    is_leaving: bool = False
    waits_for: str | None = None  # the replica that held it before, and didn't give it up
    taken_at: float = 0.0
    _delivered: int = field(init=False)  # its number

    def __post_init__(self) -> None:
        self._delivered = self.token.number

    def take(self, delivery: int, token: Token) -> int:
        """Take another token of the slot and keep the later one; returns the delivery that isn't needed any more."""
        if token.number <= self._delivered or token.number > MOST_NUMBER:
            return delivery
        if token.number > self.token.number:
            self.token = token
        former, self.delivery, self._delivered = self.delivery, delivery, token.number
        return former

    def renew(self, now: float, changed: Token | None = None) -> Token:
        """The next token, `changed` or with the same content. Once it is delivered, the former one isn't needed any
        more."""
        self.since = now
        self.token = replace(changed or self.token, number=self.token.number + 1)
        return self.token


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one replica."""

    links: int
    empty: int  # slots without links


def load_of(slots: Collection[int], weights: Mapping[int, int]) -> Load:
    held = [weights.get(slot, 0) for slot in slots]
    return Load(sum(held), held.count(0))


def has_room(slot: int, held: Collection[int], weights: Mapping[int, int], *, replicas: int) -> bool:
    """True if a replica that holds these slots stays within its share with one more."""
    load, weight = load_of(held, weights), weights.get(slot, 0)
    if not weight:
        return load.empty < _share(SLOTS - len([each for each in weights.values() if each]), replicas)
    return load.links + weight <= _share(sum(weights.values()), replicas)


def _share(whole: int, replicas: int) -> int:
    """The share of one replica, rounded up."""
    return -(-whole // max(replicas, 1))


def surplus(
    held: Collection[int],
    others: Sequence[Collection[int]],
    weights: Mapping[int, int],
    *,
    movable: Collection[int] | None = None,
    since: Mapping[int, float] = MappingProxyType({}),
) -> int | None:
    """The slot with links, if any, that a replica should give up for the one that has the fewest; of those that are
    `movable`, where they aren't all. Of equal ones it is the one that it has held for the shortest time (`since`), so
    that what came too much goes on, and nothing else moves.

    Each answer brings the two closer to each other, or is the first half of an exchange whose second half does: the
    other replica then asks the same question, and gives a slightly smaller slot back.
    """
    least = min(others, key=lambda slots: load_of(slots, weights).links, default=None)
    if least is None:
        return None
    apart = load_of(held, weights).links - load_of(least, weights).links
    if apart < 2:
        return None
    given = held if movable is None else [slot for slot in held if slot in movable]
    mine = sorted((weights[slot], slot) for slot in given if weights.get(slot, 0))
    single = [(weight, slot) for weight, slot in mine if weight < apart]
    if single:
        return min(single, key=lambda each: (abs(each[0] - apart / 2), -since.get(each[1], 0.0), each))[1]
    theirs = {weights.get(slot, 0) for slot in least}
    exchanged = (slot for weight, slot in mine if any(0 < weight - other < apart for other in theirs if other))
    return next(exchanged, None)


def surpluses(
    held: Collection[int],
    others: Sequence[Collection[int]],
    weights: Mapping[int, int],
    *,
    movable: Collection[int] | None = None,
    since: Mapping[int, float] = MappingProxyType({}),
    most: int,
) -> list[int]:
    """Several surplus slots, as they would follow from each other."""
    mine, theirs = set(held), [set(slots) for slots in others]
    found: list[int] = []
    while (
        len(found) < most
        and (slot := surplus(mine, theirs, weights, movable=movable, since=since)) is not None
        and slot not in found
    ):
        mine.remove(slot)
        min(theirs, key=lambda slots: load_of(slots, weights).links).add(slot)
        found.append(slot)
    return found


def surplus_of_empty(
    held: Collection[int], others: Sequence[Collection[int]], weights: Mapping[int, int]
) -> Collection[int]:
    """The slots without links that a replica should give up: all at once, since nothing has to be handed over."""
    fewest = min((load_of(slots, weights).empty for slots in others), default=SLOTS)
    empty = sorted(slot for slot in held if not weights.get(slot, 0))
    return empty[: max(0, len(empty) - fewest) // 2]
