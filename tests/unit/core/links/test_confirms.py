"""Whatever the order of confirms, each delivery is settled once; and how far a stream is copied."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.core.links.confirms import FEW, LARGEST_OFFSET, Confirms, NeverPublishedError, StreamOffsets
from tests.unit.measures import objects_of


class Broker(RuleBasedStateMachine):
    """An upstream that refuses to settle a delivery twice, and a downstream that answers in any order."""

    few = FEW

    def __init__(self) -> None:
        super().__init__()
        self.confirms = Confirms(self.few)
        self.next_tag = 1
        self.last = 0  # the publish number
        self.unsettled: set[int] = set()  # delivered and neither acknowledged nor returned, as the upstream sees it
        self.outstanding: dict[int, int] = {}  # publish number -> tag, as the downstream sees it
        self.answered: dict[int, bool] = {}  # tag -> taken (or dropped) or refused
        self.acknowledged: set[int] = set()
        self.returned: set[int] = set()
        self.held: set[int] = set()

    def _deliver(self) -> int:
        tag = self.next_tag
        self.next_tag += 1
        self.unsettled.add(tag)
        return tag

    @rule()
    def deliver_and_publish(self) -> None:
        tag = self._deliver()
        self._published([tag])

    @rule(count=st.integers(2, 6))
    def deliver_and_publish_at_once(self, count: int) -> None:
        self._published([self._deliver() for _ in range(count)])

    def _published(self, tags: list[int]) -> None:
        numbers = range(self.last + 1, self.last + len(tags) + 1)
        self.last = self.confirms.published(tags)
        assert self.last == numbers[-1]
        self.outstanding.update(zip(numbers, tags, strict=True))

    @rule()
    def deliver_and_drop(self) -> None:
        tag = self._deliver()
        self.answered[tag] = True
        self.confirms.dropped(tag)

    @rule()
    def deliver_and_hold(self) -> None:
        tag = self._deliver()
        self.answered[tag] = False
        self.confirms.hold(tag)
        self.held.add(tag)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.held)))
        self.confirms.returned(tag)
        self.held.remove(tag)
        assert tag in self.unsettled, "nothing that is held may be acknowledged along with others"
        self.unsettled.remove(tag)
        self.returned.add(tag)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def publish_again(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.held)))
        before, self.last = self.last, self.confirms.published_again([tag])
        assert self.last == before + 1 and self.confirms.is_in_flight(self.last)
        self.held.remove(tag)
        del self.answered[tag]
        self.outstanding[self.last] = tag

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def dispose(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.held)))
        self.confirms.disposed(tag)
        self.held.remove(tag)
        self.answered[tag] = True

    def _answer(self, number: int, *, multiple: bool, taken: bool) -> list[int]:
        named = [n for n in self.outstanding if n <= number] if multiple else [number]
        tags = [self.outstanding.pop(n) for n in sorted(named)]
        self.answered.update(dict.fromkeys(tags, taken))
        return tags

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), multiple=st.booleans())
    def confirm(self, data: st.DataObject, multiple: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.outstanding)))
        tags = self._answer(number, multiple=multiple, taken=True)
        assert self.confirms.confirmed(number, multiple=multiple) == len(tags)

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), multiple=st.booleans())
    def refuse(self, data: st.DataObject, multiple: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.outstanding)))
        tags = self._answer(number, multiple=multiple, taken=False)
        assert list(self.confirms.refused(number, multiple=multiple).values()) == tags
        self.held.update(tags)

    @precondition(lambda self: self.last > 0)
    @rule(data=st.data())
    def answers_again_are_no_news(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.last))
        if number not in self.outstanding:
            assert self.confirms.confirmed(number, multiple=False) == 0

    @rule(data=st.data(), multiple=st.booleans(), taken=st.booleans())
    def answers_to_nothing_that_was_published_are_refused(
        self, data: st.DataObject, multiple: bool, taken: bool
    ) -> None:
        """0 too: it would name what is written here and may not have arrived there."""
        number = data.draw(st.just(0) | st.integers(self.last + 1, 2**64 - 1))
        with pytest.raises(NeverPublishedError):
            (self.confirms.confirmed if taken else self.confirms.refused)(number, multiple=multiple)

    @rule()
    def acknowledge(self) -> None:
        singly, tag = self.confirms.acknowledge()
        for each in singly:
            self._acknowledge({each})
        if tag is not None:
            assert tag in self.unsettled, "RabbitMQ closes a channel that settles a tag twice"
            self._acknowledge({t for t in self.unsettled if t <= tag})

    def _acknowledge(self, tags: set[int]) -> None:
        assert all(self.answered[tag] for tag in tags), "nothing unconfirmed may be acknowledged"
        assert tags <= self.unsettled
        self.unsettled -= tags
        self.acknowledged |= tags

    @rule()
    def what_was_taken_never_waits_for_what_is_held(self) -> None:
        if self.held and not self.outstanding:
            self.acknowledge()
            assert self.unsettled == self.held

    @invariant()
    def what_is_in_flight_is_what_the_downstream_owes(self) -> None:
        assert self.confirms.in_flight == len(self.outstanding)
        assert self.confirms.held == len(self.held)
        assert self.confirms.oldest_number in {min(self.outstanding, default=None), self.last + 1}

    def teardown(self) -> None:
        for number in list(self.outstanding):
            self._answer(number, multiple=False, taken=True)
            self.confirms.confirmed(number, multiple=False)
        for tag in sorted(self.held):
            self.confirms.returned(tag)
            self.unsettled.remove(tag)
            self.returned.add(tag)
        self.held.clear()
        self.acknowledge()
        assert not self.unsettled, "everything is settled in the end"
        assert not self.acknowledged & self.returned
        assert self.acknowledged | self.returned == set(range(1, self.next_tag))


TestBroker = Broker.TestCase


class BrokerOfMany(Broker):
    """Of which what is settled is put together early and often."""

    few = 2


TestBrokerOfMany = BrokerOfMany.TestCase


def test_one_that_is_held_while_many_pass_takes_no_memory_for_them() -> None:
    few = 100
    confirms = Confirms(few)
    confirms.published([1])
    confirms.refused(1, multiple=False)
    for first in range(2, 20_002, 100):
        last = confirms.published(range(first, first + 100))
        confirms.confirmed(last, multiple=True)
        singly, together = confirms.acknowledge()
        assert (len(singly), together) == (100, None)
    assert objects_of(confirms) < 3 * few
    confirms.disposed(1)
    assert confirms.acknowledge() == ([], 1)
    confirms.published([20_002])
    confirms.confirmed(confirms.oldest_number, multiple=False)
    assert confirms.acknowledge() == ([], 20_002)


def test_a_confirm_numbered_zero_acknowledges_nothing_that_may_be_on_the_way() -> None:
    confirms = Confirms()
    confirms.published([1, 2, 3])
    with pytest.raises(NeverPublishedError, match="a confirm of publish 0, of 3 so far"):
        confirms.confirmed(0, multiple=True)
    assert confirms.acknowledge() == ([], None)
    assert confirms.in_flight == 3


def test_acknowledgements_are_merged() -> None:
    confirms = Confirms()
    confirms.published(range(1, 1001))
    for number in range(1000, 1, -1):
        confirms.confirmed(number, multiple=False)
    assert confirms.acknowledge() == ([], None)
    confirms.confirmed(1, multiple=False)
    assert confirms.acknowledge() == ([], 1000)
    assert confirms.acknowledge() == ([], None)


def test_a_refusal_holds_up_nothing_that_was_taken() -> None:
    confirms = Confirms()
    confirms.published(range(1, 7))
    confirms.confirmed(4, multiple=False)
    assert confirms.refused(2, multiple=False) == {2: 2}
    confirms.confirmed(6, multiple=True)
    singly, together = confirms.acknowledge()
    assert (sorted(singly), together) == ([3, 4, 5, 6], 1)
    confirms.published([7])
    confirms.returned(2)
    confirms.confirmed(7, multiple=False)
    assert confirms.acknowledge() == ([], 7)


def test_what_is_confirmed_and_can_not_be_acknowledged_yet_is_counted() -> None:
    confirms = Confirms()
    confirms.published([1, 2, 3, 4])
    confirms.confirmed(3, multiple=False)
    confirms.confirmed(4, multiple=False)
    assert confirms.unacknowledged == 2
    assert confirms.acknowledge() == ([], None)
    assert confirms.unacknowledged == 2
    confirms.confirmed(1, multiple=False)
    assert confirms.unacknowledged == 3
    assert confirms.acknowledge() == ([], 1)
    assert confirms.unacknowledged == 2
    confirms.refused(2, multiple=False)
    assert confirms.unacknowledged == 2
    assert confirms.acknowledge() == ([3, 4], None)
    assert confirms.unacknowledged == 0


gaps = st.lists(st.integers(1, 3), min_size=1, max_size=60)
Choose = Callable[[st.SearchStrategy[int]], int]


@given(first=st.integers(0, 2**40), gaps=gaps, data=st.data())
def test_the_place_is_below_all_that_is_unsettled(first: int, gaps: list[int], data: st.DataObject) -> None:
    """Whatever is confirmed, refused, published again or put into the quarantine, and in whichever order."""
    confirms, offsets = Confirms(few=4), StreamOffsets()
    offset_of: dict[int, int] = {}
    settled: set[int] = set()
    tag_of: dict[int, int] = {}  # by publish number
    held: list[int] = []
    offset = first
    for tag, gap in enumerate(gaps, start=1):
        offset += gap
        offsets.note(tag, offset)
        offset_of[tag] = offset
        tag_of[confirms.published([tag])] = tag
        for _ in range(data.draw(st.integers(0, 2))):
            _happen(data.draw, confirms, tag_of, held, settled)
        _check(offsets.up_to(confirms.settled), offset_of, settled)
    while tag_of or held:
        _happen(data.draw, confirms, tag_of, held, settled)
        _check(offsets.up_to(confirms.settled), offset_of, settled)
    assert offsets.up_to(confirms.settled) == offset


def _happen(draw: Choose, confirms: Confirms, tag_of: dict[int, int], held: list[int], settled: set[int]) -> None:
    what = draw(st.integers(0, 3))
    if what < 3 and tag_of:
        number = draw(st.sampled_from(sorted(tag_of)))
        multiple = bool(draw(st.integers(0, 1)))
        named = [each for each in tag_of if each == number or (multiple and each < number)]
        if what == 2:
            confirms.refused(number, multiple=multiple)
            held += [tag_of.pop(each) for each in named]
        else:
            confirms.confirmed(number, multiple=multiple)
            settled.update(tag_of.pop(each) for each in named)
    elif held:
        tag = held.pop(draw(st.integers(0, len(held) - 1)))
        if draw(st.integers(0, 1)):
            tag_of[confirms.published_again([tag])] = tag
        else:
            confirms.disposed(tag)
            settled.add(tag)


def _check(place: int | None, offset_of: dict[int, int], settled: set[int]) -> None:
    unsettled = [offset for tag, offset in offset_of.items() if tag not in settled]
    assert place is not None
    assert place < min(unsettled, default=LARGEST_OFFSET)
    below = [offset for offset in offset_of.values() if offset < min(unsettled, default=LARGEST_OFFSET)]
    assert place == max(below, default=offset_of[1] - 1), "and no lower than it has to be"


def test_what_makes_no_sense_is_ignored() -> None:
    offsets = StreamOffsets()
    for tag, offset in enumerate((5, 5, 3, LARGEST_OFFSET + 1, 2**64 - 1, 9), start=1):
        offsets.note(tag, offset)
    assert [offsets.up_to(tag) for tag in range(8)] == [4, 5, 5, 5, 5, 5, 9, 9]


def test_before_anything_has_come_there_is_no_place() -> None:
    assert StreamOffsets().up_to(0) is None


def test_places_within_a_run_and_behind_it() -> None:
    offsets = StreamOffsets()
    for tag in range(1, 101):
        offsets.note(tag, tag + 7)
    assert [offsets.up_to(tag) for tag in (0, 50, 50, 99, 100, 200)] == [7, 57, 57, 106, 107, 107]
    offsets.note(101, 200)
    assert offsets.up_to(100) == 107
    assert offsets.up_to(101) == 200
