"""Fair shares of links, by slots that weigh as many links as they have."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agent.core.replicas.slots import (
    SLOTS,
    has_room,
    lease_queue,
    load_of,
    slot_of,
    surplus,
    surplus_of_empty,
    surpluses,
)

ids = st.sets(st.integers(0, 2**32 - 1).map(lambda number: f"{number:08x}"), max_size=300)


def weights_of(links: set[str]) -> Counter[int]:
    return Counter(slot_of(link) for link in links)


def level(holdings: list[set[int]], weights: Counter[int]) -> int:
    """Gives slots up as replicas do, each for the one with the fewest; answers how many links moved."""
    moved = 0
    for _ in range(500):
        order = sorted(range(len(holdings)), key=lambda each: (load_of(holdings[each], weights).links, each))
        most = holdings[order[-1]]
        others = [holdings[each] for each in order[:-1]]
        slot = surplus(most, others, weights)
        if slot is None:
            return moved
        most.remove(slot)
        others[0].add(slot)
        moved += weights[slot]
    raise AssertionError("it goes on for ever")


@given(ids, st.integers(2, 5), st.randoms(use_true_random=False))
def test_it_ends_with_even_shares_however_it_began(links, replicas, random) -> None:  # type: ignore[no-untyped-def]
    """As even as slots allow, which may weigh several links each; and it ends."""
    weights = weights_of(links)
    holdings: list[set[int]] = [set() for _ in range(replicas)]
    for slot in range(SLOTS):
        random.choice(holdings).add(slot)
    level(holdings, weights)
    loads = [load_of(slots, weights).links for slots in holdings]
    assert max(loads) - min(loads) <= max(1, max(weights.values(), default=0))
    assert set.union(*holdings) == set(range(SLOTS))


def test_thousand_links_are_shared_within_one() -> None:
    weights = weights_of({f"{number * 2654435761 % 2**32:08x}" for number in range(1000)})
    holdings = [set(range(SLOTS)), set[int](), set[int]()]
    level(holdings, weights)
    loads = sorted(load_of(slots, weights).links for slots in holdings)
    assert loads == [333, 333, 334]


def test_no_more_links_move_than_needed() -> None:
    weights = Counter(dict.fromkeys(range(10), 1))
    holdings = [set(range(5)), set(range(5, 10)), set[int]()]
    assert level(holdings, weights) == 3


def test_two_heavy_slots_are_exchanged_for_a_lighter_one() -> None:
    weights = Counter({0: 2, 1: 2, 2: 1, 3: 1})
    holdings = [{0, 1}, {2, 3}]
    level(holdings, weights)
    assert [load_of(slots, weights).links for slots in holdings] == [3, 3]


def test_several_at_once_are_those_one_after_another() -> None:
    weights = Counter(dict.fromkeys(range(8), 1))
    assert len(surpluses(set(range(8)), [set()], weights, most=3)) == 3
    assert len(surpluses(set(range(8)), [set()], weights, most=9)) == 4
    assert surpluses(set(range(8)), [], weights, most=3) == []


def test_who_has_its_share_has_no_room() -> None:
    weights = Counter(dict.fromkeys(range(4), 1))
    assert has_room(1, {0}, weights, replicas=2)
    assert not has_room(2, {0, 1}, weights, replicas=2)
    assert has_room(2, {0, 1}, weights, replicas=1)


def test_slots_without_links_are_shared_by_their_number() -> None:
    weights: Counter[int] = Counter()
    assert len(surplus_of_empty(set(range(SLOTS)), [set()], weights)) == SLOTS // 2
    assert surplus_of_empty({0, 1}, [{2}], weights) == []
    assert not has_room(40, set(range(SLOTS // 2)), weights, replicas=2)


def test_a_lease_is_called_alike_by_all_replicas() -> None:
    assert slot_of("0000002a") == 42
    assert lease_queue("dc2", 42) == "federation-agent: lease 1 of dc2, slot 42"
    assert len(lease_queue("ä" * 255, 63).encode()) < 255


def test_what_came_last_is_given_first() -> None:
    weights = dict.fromkeys(range(6), 1)
    assert surpluses(range(5), [{5}], weights, since={0: 1.0, 1: 7.0, 2: 1.0, 3: 9.0, 4: 1.0}, most=4) == [3, 1]
