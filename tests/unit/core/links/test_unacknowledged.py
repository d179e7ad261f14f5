"""Refused messages that only their source has: how many are asked for at a time, and after which pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.unacknowledged import (
    COMES_BACK_WITHIN,
    FEW,
    FEW_BYTES,
    FORGOTTEN_AFTER,
    LONGEST,
    MOST_BYTES,
    SHORTEST,
    SPARINGLY,
    Refusal,
    UnacknowledgedRefusals,
)

A, B = b"a", b"b"


class Source:
    """Gives again what was returned, in its order and with other tags."""

    def __init__(self, count: int, *, size: int = 1_000, returns_are_counted: bool = False, address: bytes = A) -> None:
        self.now = 100.0
        self.parked = UnacknowledgedRefusals()
        self.parked.returns_are_counted = returns_are_counted
        self.last = 0
        for _ in range(count):
            self.park(Refusal(address, size, self.now, self.now))

    def park(self, refusal: Refusal) -> None:
        self.last += 1
        self.parked.park(self.last, refusal, self.now)

    def wait(self, room: int = 0) -> tuple[float, list[int]]:
        """Until some are returned: for how long, and which ones."""
        at = self.parked.wakes_at
        assert at is not None
        waited, self.now = max(0.0, at - self.now), max(at, self.now)
        return waited, self.parked.due(self.now, room)

    def answer(self, count: int, *, well: bool, address: bytes = A) -> None:
        for _ in range(count):
            refusal = self.parked.came_again(address, self.now)
            assert refusal is not None
            self.parked.fared(well=well, now=self.now)
            if not well:
                self.park(refusal)


def test_a_few_are_tried_in_turn_with_growing_pauses() -> None:
    source = Source(100)
    waited, tags = zip(*(_refused(source) for _ in range(10)), strict=True)
    assert waited == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, LONGEST])
    assert all(len(each) == FEW for each in tags)
    assert sorted(tag for each in tags[:6] for tag in each) == list(range(1, 97)), "each, before any comes twice"


def _refused(source: Source) -> tuple[float, list[int]]:
    waited, tags = source.wait()
    source.answer(len(tags), well=False)
    return waited, tags


def test_while_most_get_through_they_are_more_each_time() -> None:
    source = Source(5_000)
    for _ in range(20):
        _refused(source)
    waited, tags = source.wait()
    assert waited == LONGEST
    counts = []
    while source.parked.waiting:
        source.answer(len(tags), well=True)
        waited, tags = source.wait()
        assert waited <= 2 * SHORTEST
        counts.append(len(tags))
    assert counts[:6] == [32, 64, 128, 256, 512, 1024]


def test_on_a_long_path_none_follow_before_something_is_known_of_the_last() -> None:
    source = Source(5_000)
    counts = []
    for _ in range(8):
        _, tags = source.wait()
        assert source.wait()[1] == []
        source.answer(len(tags), well=True)
        counts.append(len(tags))
    assert counts == [16, 32, 64, 128, 256, 512, 1024, 1024]


def test_of_two_kinds_that_are_mixed_the_one_that_gets_through_is_not_held_up() -> None:
    source = Source(0)
    for at in range(3_000):
        source.park(Refusal(A if at % 3 else B, 1_000, source.now, source.now))
    began, left, returned = source.now, 1_000, 0
    while left and source.now - began < 600:
        _, tags = source.wait()
        returned += len(tags)
        passing = 0
        while source.parked.came_again(B, source.now) is not None:
            source.parked.fared(well=True, now=source.now)
            passing += 1
        left -= passing
        source.answer(len(tags) - passing, well=False)
    assert left == 0 and source.now - began < 60
    assert returned < 6_000


@given(st.integers(1, 10 * FEW_BYTES), st.integers(1, 200), st.booleans())
def test_few_bytes_go_back_at_first_but_always_one(size: int, count: int, returns_are_counted: bool) -> None:
    source = Source(count, size=size, returns_are_counted=returns_are_counted)
    _, tags = source.wait()
    assert tags == list(range(1, len(tags) + 1))
    assert len(tags) == 1 or (len(tags) <= FEW and len(tags) * size <= FEW_BYTES)


def test_never_more_bytes_go_back_than_are_on_the_way_otherwise() -> None:
    source = Source(2_000, size=256 * 1024)
    largest = 0
    while source.parked.waiting:
        _, tags = source.wait()
        largest = max(largest, len(tags))
        source.answer(len(tags), well=True)
    assert largest * 256 * 1024 == MOST_BYTES


def test_no_more_go_back_than_could_be_kept_where_there_is_room() -> None:
    source = Source(100)
    _, tags = source.wait(room=3_500)
    assert len(tags) == 3


def test_where_each_return_is_counted_few_go_back_and_seldom() -> None:
    source = Source(100, returns_are_counted=True)
    assert [_refused(source)[0] for _ in range(4)] == [SPARINGLY] * 4
    _, tags = source.wait()
    source.answer(1, well=True)
    source.answer(len(tags) - 1, well=False)
    assert source.wait()[0] == SPARINGLY, "one that gets through costs no others a step"


def test_where_each_return_is_counted_room_to_keep_them_brings_them_back() -> None:
    source = Source(100, returns_are_counted=True)
    source.parked.hurry(source.now)
    waited, tags = source.wait(room=5_000)
    assert waited == pytest.approx(SHORTEST)
    assert len(tags) == 5
    source.answer(5, well=True)
    assert source.wait(room=50_000)[0] == pytest.approx(SHORTEST)


def test_those_that_are_on_their_way_count_for_a_while() -> None:
    source = Source(10)
    source.wait()
    assert (source.parked.waiting, source.parked.count(source.now)) == (0, 10)
    assert source.parked.count(source.now + COMES_BACK_WITHIN + 1) == 0


def test_one_that_comes_again_is_as_old_as_before_if_it_has_the_same_address() -> None:
    source = Source(0)
    for since in (1.0, 2.0):
        source.park(Refusal(A, 10, since, source.now))
    source.wait()
    assert source.parked.came_again(B, source.now) is None
    found = [source.parked.came_again(A, source.now) for _ in range(3)]
    assert [each.since for each in found if each is not None] == [1.0, 2.0]
    assert not source.parked.expects


def test_one_that_somebody_else_took_is_forgotten() -> None:
    source = Source(2 * FEW)
    source.wait()
    source.now += FORGOTTEN_AFTER + 1
    source.wait()
    found = 0
    while source.parked.came_again(A, source.now):
        found += 1
    assert found == FEW


def test_what_does_not_come_again_is_forgotten_though_others_are_returned_all_the_time() -> None:
    source = Source(FEW)
    source.wait()
    source.now += FORGOTTEN_AFTER / 2
    for _ in range(10):
        source.park(Refusal(B, 1_000, source.now, source.now))
        source.wait()
        assert source.parked.came_again(B, source.now) is not None
        source.now += FORGOTTEN_AFTER / 6
        source.parked.forget(source.now)
    assert not source.parked.expects
    assert source.parked.came_again(A, source.now) is None, "another one has this address now"


def test_what_is_returned_since_nobody_waits_for_it_keeps_its_age() -> None:
    source = Source(3)
    began = source.now
    assert source.parked.return_all(began + 1) == [1, 2, 3]
    assert not source.parked.waiting
    refusal = source.parked.came_again(A, began + 2)
    assert refusal is not None
    assert refusal.since == began
