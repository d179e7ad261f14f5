"""What is compared adds up, whatever moves and however old the broker's numbers are."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.upstream_account import QUIET_FOR, Compared, LinkCounts, QueueCounts, UpstreamAccount

LATEST = 10.0
"""So old is a number of the broker at most."""
EVERY = 5.0


def account(*looks: tuple[float, int, int, int, int]) -> Compared:
    """From looks: when, entered, acknowledged, messages, settled."""
    found = UpstreamAccount()
    for now, entered, acknowledged, messages, settled in looks:
        found = found.look(QueueCounts(entered, acknowledged, messages), LinkCounts(settled, 0), now)
    return found.compared


def test_nothing_is_compared_before_all_is_quiet() -> None:
    assert account((0, 5, 5, 0, 5), (QUIET_FOR - 1, 5, 5, 0, 5)) == Compared()
    assert account((0, 5, 5, 0, 5), (9, 6, 5, 1, 5), (20, 6, 5, 1, 5)) == Compared()
    assert account((0, 5, 5, 0, 5), (QUIET_FOR, 5, 5, 0, 5)) == Compared(looks=1, waiting=0)


def test_what_moved_between_quiet_looks_counts() -> None:
    quiet = [(0.0, 5, 5, 0, 5), (20.0, 5, 5, 0, 5)]
    moved = [*quiet, (30.0, 9, 7, 1, 8), (40.0, 10, 8, 2, 8), (60.0, 10, 8, 2, 8)]
    assert account(*moved) == Compared(2, entered=5, acknowledged=3, growth=2, settled=3, waiting=2)
    assert account(*moved, (70.0, 10, 8, 2, 8)).looks == 3


def test_a_broker_that_counts_anew_ends_what_can_be_compared() -> None:
    before = [(0.0, 5, 5, 0, 5), (20.0, 5, 5, 0, 5)]
    anew = [(30.0, 0, 0, 0, 9), (31.0, 50, 50, 0, 59), (60.0, 50, 50, 0, 59)]
    assert account(*before, *anew) == Compared(looks=2, waiting=0)
    assert account(*before, *anew, (70.0, 51, 51, 0, 60), (90.0, 51, 51, 0, 60)).entered == 1


def test_after_an_interruption_nothing_before_is_compared() -> None:
    found = UpstreamAccount()
    for now, entered in ((0.0, 5), (20.0, 5)):
        found = found.look(QueueCounts(entered, 5, 0), LinkCounts(5, 0), now)
    found = found.interrupted()
    for now, entered in ((30.0, 50), (50.0, 50)):
        found = found.look(QueueCounts(entered, 50, 0), LinkCounts(5, 0), now)
    assert found.compared == Compared(looks=2, waiting=0)


@dataclass
class Queue:
    """Each of its numbers is as old as the broker likes."""

    entered: list[int] = field(default_factory=lambda: [0])
    acknowledged: list[int] = field(default_factory=lambda: [0])
    messages: list[int] = field(default_factory=lambda: [0])

    def step(self, entered: int, taken: int) -> None:
        taken = min(taken, self.messages[-1] + entered)
        self.entered.append(self.entered[-1] + entered)
        self.acknowledged.append(self.acknowledged[-1] + taken)
        self.messages.append(self.messages[-1] + entered - taken)


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)) | st.just((0, 0)), max_size=40)
AGES = st.tuples(*(st.integers(0, int(LATEST / EVERY)) for _ in range(3)))


@given(steps=STEPS, ages=st.lists(AGES, min_size=200, max_size=200), calm=st.integers(0, 6))
def test_what_is_compared_adds_up(steps: list[tuple[int, int]], ages: list[tuple[int, int, int]], calm: int) -> None:
    """One step takes as long as a look; numbers never become older again."""
    queue, found, shown = Queue(), UpstreamAccount(), (0, 0, 0)
    every = [each for step in steps for each in (step, *[(0, 0)] * calm)]
    for number, step in enumerate(every[: len(ages)]):
        queue.step(*step)
        latest = len(queue.entered) - 1
        first, second, third = (max(before, latest - age) for before, age in zip(shown, ages[number], strict=True))
        shown = (first, second, third)
        counts = QueueCounts(queue.entered[first], queue.acknowledged[second], queue.messages[third])
        settled = queue.acknowledged[-1]
        found = found.look(counts, LinkCounts(settled, 0), number * EVERY)
        sums = found.compared
        assert sums.entered == sums.acknowledged + sums.growth
        assert sums.acknowledged == sums.settled
