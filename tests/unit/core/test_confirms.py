from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.core.confirms import Confirms


class Broker(RuleBasedStateMachine):
    """An upstream that refuses to settle a delivery twice, and a downstream that answers in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.confirms = Confirms()
        self.next_tag = 1
        self.unsettled: set[int] = set()  # delivered and neither acknowledged nor returned, as the upstream sees it
        self.outstanding: dict[int, int] = {}  # publish number -> tag, as the downstream sees it
        self.answered: dict[int, bool] = {}  # tag -> taken (or dropped) or refused
        self.acknowledged: set[int] = set()
        self.returned: set[int] = set()

    def _deliver(self) -> int:
        tag = self.next_tag
        self.next_tag += 1
        self.unsettled.add(tag)
        return tag

    @rule()
    def deliver_and_publish(self) -> None:
        tag = self._deliver()
        number = self.confirms.published(tag)
        assert number not in self.outstanding
        self.outstanding[number] = tag

    @rule()
    def deliver_and_drop(self) -> None:
        tag = self._deliver()
        self.answered[tag] = True
        self.confirms.dropped(tag)

    @rule()
    def deliver_and_return(self) -> None:
        tag = self._deliver()
        self.answered[tag] = False
        self.confirms.returned(tag)
        self._return(tag)

    def _return(self, tag: int) -> None:
        self.unsettled.remove(tag)
        self.returned.add(tag)

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
        assert sorted(self.confirms.refused(number, multiple=multiple)) == tags
        for tag in tags:
            self._return(tag)

    @rule(number=st.integers(0, 50), multiple=st.booleans())
    def answers_again_are_no_news(self, number: int, multiple: bool) -> None:
        if not multiple and number not in self.outstanding:
            assert self.confirms.confirmed(number, multiple=False) == 0

    @rule()
    def acknowledge(self) -> None:
        tag = self.confirms.acknowledge()
        if tag is None:
            return
        assert tag in self.unsettled, "RabbitMQ closes a channel that settles a tag twice"
        settled = {t for t in self.unsettled if t <= tag}
        assert all(self.answered[t] for t in settled), "nothing unconfirmed may be acknowledged"
        self.unsettled -= settled
        self.acknowledged |= settled

    @invariant()
    def what_is_in_flight_is_what_the_downstream_owes(self) -> None:
        assert self.confirms.in_flight == len(self.outstanding)
        assert self.confirms.oldest_tag == min(self.outstanding.values(), default=None)

    def teardown(self) -> None:
        for number in list(self.outstanding):
            self._answer(number, multiple=False, taken=True)
            self.confirms.confirmed(number, multiple=False)
        self.acknowledge()
        assert not self.unsettled, "everything is settled in the end"
        assert not self.acknowledged & self.returned
        assert self.acknowledged | self.returned == set(range(1, self.next_tag))


TestBroker = Broker.TestCase


def test_a_confirm_of_everything_so_far_may_be_numbered_zero() -> None:
    confirms = Confirms()
    for tag in (1, 2, 3):
        confirms.published(tag)
    assert confirms.confirmed(0, multiple=True) == 3
    assert confirms.acknowledge() == 3


def test_acknowledgements_are_merged() -> None:
    confirms = Confirms()
    for tag in range(1, 1001):
        confirms.published(tag)
    for number in range(1000, 1, -1):
        confirms.confirmed(number, multiple=False)
    assert confirms.acknowledge() is None
    confirms.confirmed(1, multiple=False)
    assert confirms.acknowledge() == 1000
    assert confirms.acknowledge() is None
