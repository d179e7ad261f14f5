"""Fair shares: the slots that a replica takes, and the one that it gives up for others.

A slot weighs as many links as belong to it. Slots without links are shared by their number, so that links which are
defined later are shared from the beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agent.core.replicas.slots import SLOTS


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
