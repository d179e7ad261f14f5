"""Refused messages that only their source has: how many are asked for at a time, and after which pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.confirms import Confirms
from agent.core.links.refusals import (
    COMES_BACK_WITHIN,
    FEW,
    FEW_BYTES,
    FORGOTTEN_AFTER,
    LONGEST,
    MOST_BYTES,
    SHORTEST,
    SPARINGLY,
    Refusals,
)

A, B = b"a", b"b"


class Source:
    """Gives again what was returned, in its order and with other tags."""

    def __init__(self, count: int, *, size: int = 1_000, returns_are_counted: bool = False) -> None:
        self.now = 100.0
        self.confirms = Confirms()
        self.parked = Refusals(self.confirms, give_up_after=None, returns_are_counted=returns_are_counted)
        self.last = 0
        self.size = size
        self.addresses: dict[int, bytes] = {}
        for _ in range(count):
            self.refuse(self.publish())

    def publish(self) -> int:
        """A delivery; its tag is the number of its publish."""
        self.last += 1
        return self.confirms.published([self.last])

    def refuse(self, number: int, address: bytes = A) -> None:
        self.addresses[number] = address
        self.confirms.refused(number, multiple=False)
        self.parked.leave_unacknowledged(number, number, (address, self.size), self.now)

    def take(self, number: int) -> None:
        self.confirms.confirmed(number, multiple=False)
        self.parked.confirmed(1, self.now)

    def wait(self, room: int = 0) -> tuple[float, list[int]]:
        """Until some are returned: for how long, and which ones."""
        at = self.parked.wakes_at
        assert at < float("inf")
        waited, self.now = max(0.0, at - self.now), max(at, self.now)
        return waited, self.parked.to_return(self.now, room)

    def deliver_again(self, address: bytes = A) -> int:
        number = self.publish()
        self.parked.came_again(number, address, self.now)
        return number

    def answer(self, count: int, *, well: bool, address: bytes = A) -> None:
        for _ in range(count):
            number = self.deliver_again(address)
            if well:
                self.take(number)
            else:
                self.refuse(number, address)


def test_a_few_are_tried_in_turn_with_growing_pauses() -> None:
    source = Source(100)
    waited, tags = zip(*(_refused(source) for _ in range(10)), strict=True)
    assert waited == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, LONGEST])
    assert all(len(each) == FEW for each in tags)
    assert sorted(tag for each in tags[:6] for tag in each) == list(range(1, 97)), "each, before any comes twice"


def test_a_single_one_is_tried_with_growing_pauses() -> None:
    source = Source(1)
    waited = [_refused(source)[0] for _ in range(10)]
    assert waited == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, LONGEST])


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
        source.refuse(source.publish(), A if at % 3 else B)
    began, left, returned = source.now, 1_000, 0
    while left and source.now - began < 600:
        _, tags = source.wait()
        returned += len(tags)
        passing = sum(source.addresses[tag] == B for tag in tags)
        source.answer(passing, well=True, address=B)
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
    source.parked.has_room(5_000, source.now)
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
    for source.now in (1.0, 2.0):
        source.refuse(source.publish())
    source.wait()
    source.now = 3.0
    numbers = [source.deliver_again(address) for address in (A, A, A, B)]
    assert not source.parked.expects
    for number, address, since in zip(reversed(numbers), (B, A, A, A), (3.0, 3.0, 2.0, 1.0), strict=True):
        source.refuse(number, address)
        source.now += 1.0
        oldest = source.parked.oldest
        assert oldest is not None and oldest[0] == since


def came_again(source: Source, count: int) -> int:
    """How many are recognized of so many that come again."""
    before = source.parked.count(source.now + FORGOTTEN_AFTER)
    for _ in range(count):
        source.deliver_again()
    return source.parked.count(source.now + FORGOTTEN_AFTER) - before


def test_one_that_somebody_else_took_is_forgotten() -> None:
    source = Source(2 * FEW)
    source.wait()
    source.now += FORGOTTEN_AFTER + 1
    source.wait()
    assert came_again(source, 2 * FEW) == FEW


def test_what_does_not_come_again_is_forgotten_though_others_are_returned_all_the_time() -> None:
    source = Source(FEW)
    source.wait()
    source.now += FORGOTTEN_AFTER / 2
    for _ in range(10):
        source.refuse(source.publish(), B)
        source.wait()
        number = source.deliver_again(B)
        source.now += FORGOTTEN_AFTER / 6
        source.take(number)
    assert not source.parked.expects
    assert came_again(source, 1) == 0, "another one has this address now"


def test_what_is_returned_since_nobody_waits_for_it_keeps_its_age() -> None:
    source = Source(3)
    began = source.now
    assert source.parked.return_all(began + 1) == [1, 2, 3]
    assert not source.parked.waiting
    source.now = began + 2
    source.refuse(source.deliver_again())
    assert source.parked.oldest == (began, A)


def test_of_one_that_is_not_noted_only_the_tag_is_known() -> None:
    source = Source(0)
    for number in (1, 2):
        source.confirms.published([number])
        source.parked.leave_unacknowledged(number, number, None, source.now)
    assert (source.parked.count(source.now), source.parked.waiting, source.parked.noted) == (2, 0, 0)
    assert source.parked.has_waiting and source.parked.oldest is None
    waited, tags = source.wait()
    assert waited == pytest.approx(SHORTEST) and tags == [1, 2]
    assert not source.parked.is_busy


def test_those_that_are_not_noted_come_later_and_later_until_more_gets_through_than_they_are() -> None:
    source = Source(0)

    def pauses(count: int) -> list[float]:
        found = []
        for _ in range(count):
            number = source.publish()
            source.confirms.refused(number, multiple=False)
            source.parked.leave_unacknowledged(number, number, None, source.now)
            found.append(source.wait()[0])
        return found

    assert pauses(4) == pytest.approx([0.1, 0.2, 0.4, 0.8])
    source.parked.confirmed_since += 2
    assert pauses(4) == pytest.approx([1.6, 0.1, 0.2, 0.4])
