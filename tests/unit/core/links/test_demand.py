"""When queue links take messages, against simulated consumers; all times are of the simulation."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.demand import FEW, FIRST_REST, LONGEST_REST, Demand, Idle, Look

STEP = 0.01


@dataclass
class Queue:
    """A queue, its consumers, an upstream with `waiting` messages, and the link between, that looks when it is due."""

    waiting: float = 0.0
    users: int = 0
    rate: float = 0.0  # messages a second that the consumers take, together
    link_rate: float = 10_000.0
    is_heard: bool = True
    ready: float = 0.0
    now: float = 0.0
    forwarded: float = 0.0
    demand: Demand = field(default_factory=Demand)
    due_at: float = 0.0
    changes: list[tuple[float, bool]] = field(default_factory=list)
    seen_forwarded: float = 0.0

    def event(self, users: int) -> None:
        self.users = users
        if self.is_heard:
            self.due_at = self.now

    def run(self, seconds: float, *, arriving: float = 0.0) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += STEP
            self.waiting += arriving * STEP
            moved = min(self.waiting, self.link_rate * STEP) if self.demand.takes else 0.0
            self.waiting -= moved
            self.forwarded += moved
            self.ready = max(0.0, self.ready + moved - (self.rate * STEP if self.users else 0.0))
            has_moved = int(self.forwarded) != int(self.seen_forwarded) and self.due_at - self.now > 0.25
            if self.now >= self.due_at or has_moved:
                self.look()

    def look(self) -> None:
        before, self.seen_forwarded = self.demand.takes, self.forwarded
        takes = self.demand.look(self.now, Look(int(self.ready), self.users, int(self.forwarded)))
        if takes is not before:
            self.changes.append((self.now, takes))
        self.due_at = self.now + self.demand.due_in(is_heard=self.is_heard)


@pytest.mark.parametrize("is_heard", [False, True])
def test_begins_within_a_second_of_a_consumer_and_ends_within_two_of_its_end(is_heard: bool) -> None:
    queue = Queue(waiting=5, is_heard=is_heard)
    queue.run(3.3)
    assert queue.demand.idle is Idle.NO_CONSUMERS
    came, queue.rate = queue.now, 100.0
    queue.event(1)
    queue.run(5)
    gone = queue.now
    queue.event(0)
    queue.run(5)
    (begun, _), (ended, _) = queue.changes
    assert begun - came <= (0.05 if is_heard else 1.05)
    assert ended - gone <= (0.5 if is_heard else 1.5)
    assert queue.demand.idle is Idle.NO_CONSUMERS


def test_stops_at_once_where_the_last_consumer_leaves_messages() -> None:
    queue = Queue(waiting=100, users=1, rate=10)
    queue.run(1)
    queue.ready = 3
    queue.demand.takes = True
    queue.event(0)
    queue.run(STEP)
    assert not queue.demand.takes


def test_a_consumer_that_comes_back_soon_changes_nothing() -> None:
    queue = Queue(users=1, rate=10)
    queue.run(1)
    for _ in range(10):
        queue.event(0)
        queue.run(0.2)
        queue.event(1)
        queue.run(1)
    assert len(queue.changes) == 1


@given(rate=st.floats(5, 500), share=st.floats(0.1, 0.95))
def test_a_consumer_that_keeps_up_with_gaps_does_not_make_it_flap(rate: float, share: float) -> None:
    """One that takes one at a time looks like this: a message or none waits."""
    queue = Queue(users=1, rate=rate)
    for _ in range(20):
        queue.run(0.7, arriving=rate * share)
        queue.run(0.3)
    assert len(queue.changes) == 1


@given(rate=st.floats(1, 20_000))
def test_what_waits_downstream_stays_a_small_part_of_a_large_backlog(rate: float) -> None:
    """As many as move between two looks, and what the consumers take within a second or so."""
    queue = Queue(waiting=1e6, users=1, rate=rate)
    worst = 0.0
    for _ in range(40):
        queue.run(0.25)
        worst = max(worst, queue.ready)
    assert worst <= 0.35 * queue.link_rate + 2 * rate + FEW


def test_consumers_that_are_fast_never_wait() -> None:
    """A drain goes at the pace of its consumers, once that is known."""
    queue = Queue(waiting=1e6, users=1, rate=8_000)
    queue.run(2)
    before = queue.forwarded - queue.ready
    queue.run(10)
    assert queue.forwarded - queue.ready - before >= 0.97 * 8_000 * 10


@given(rate=st.floats(1, 5_000))
def test_changes_are_rare_with_a_backlog(rate: float) -> None:
    queue = Queue(waiting=1e6, users=1, rate=rate)
    queue.run(20)
    assert len(queue.changes) <= 2 + 20 * 4


def test_waits_for_messages_that_are_there() -> None:
    queue = Queue(users=1, ready=100.0, waiting=10)
    queue.run(1)
    assert queue.demand.idle is Idle.NOT_EMPTY
    queue.rate = 100
    queue.run(2.2)
    assert queue.demand.takes


def test_idle_links_are_looked_at_rarely() -> None:
    demand = Demand()
    demand.look(0, Look(0, 0))
    assert demand.due_in(is_heard=True) >= 30
    assert demand.due_in(is_heard=False) >= 1
    demand.look(1, Look(0, 1))
    demand.look(2, Look(0, 1))
    assert demand.due_in(is_heard=True) >= 30


def looked(demand: Demand, now: float, visits: int, *, users: int = 1) -> bool:
    forwarded = int(now * 1_000)
    return demand.look(now, Look(0, users, forwarded=forwarded, most_visits=visits, revisited=forwarded))


def test_rests_ever_longer_while_messages_go_to_and_fro() -> None:
    demand, now, visits = Demand(), 0.0, 1
    rests: list[float] = []
    assert looked(demand, now, visits)
    while len(rests) < 8:
        now, visits = now + 0.25, visits + 5
        assert not looked(demand, now, visits)
        assert demand.idle is Idle.COMES_BACK
        rests.append(demand.due_in(is_heard=True))
        now += rests[-1] + STEP
        assert looked(demand, now, visits)
    assert rests[0] == FIRST_REST
    assert rests[-1] == LONGEST_REST
    assert rests == sorted(rests)
    now += 1
    assert not looked(demand, now, visits + 5)
    assert looked(demand, now + 0.1, visits + 5, users=2)  # somebody new may be free


def test_counts_of_visits_that_are_forged_stop_nothing() -> None:
    demand = Demand()
    for visits in range(1, 100):
        assert demand.look(visits, Look(0, 1, forwarded=10 * visits, most_visits=5 * visits, revisited=visits))


def test_a_backlog_that_nobody_takes_from_is_looked_at_less_and_less_often() -> None:
    demand = Demand()
    pauses = []
    for now in range(6):
        demand.look(now, Look(1_000, 1))
        pauses.append(demand.due_in(is_heard=True))
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.25, 1.0)


def test_a_message_that_came_often_before_is_no_sign() -> None:
    demand = Demand()
    looked(demand, 0, 0)
    assert looked(demand, 1, 40)
    assert looked(demand, 2, 41)


def test_a_queue_that_may_be_deleted_is_not_left_while_there_are_consumers() -> None:
    demand = Demand(is_auto_delete=True)
    assert demand.look(0, Look(0, 1))
    assert demand.look(1, Look(10_000, 1, forwarded=10_000))
    assert not demand.look(2, Look(10_000, 0, forwarded=10_000))
    assert demand.idle is Idle.NO_CONSUMERS
