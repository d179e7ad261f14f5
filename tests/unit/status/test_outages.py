"""Since when a link has its trouble, where it comes and goes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from agent.core.links.lifecycle import Status
from agent.errors import Failure, FailureKind, Side
from agent.status.outages import STEADY, OutageTracker

LOST, UNREACHABLE, REFUSED = (
    Failure(kind, Side.UPSTREAM, is_permanent=kind is FailureKind.INVALID)
    for kind in (FailureKind.LOST, FailureKind.UNREACHABLE, FailureKind.INVALID)
)
LOST_DOWNSTREAM, UNREACHABLE_DOWNSTREAM, MEMORY = (
    Failure(kind, Side.DOWNSTREAM) for kind in (FailureKind.LOST, FailureKind.UNREACHABLE, FailureKind.MEMORY_ALARM)
)


@dataclass
class Course:
    """What happens to a link, one second after another."""

    now: float = 1_000.0
    troubles: OutageTracker = field(default_factory=OutageTracker)

    def turn(self, status: Status, failure: Failure | None, *, worked: bool = True, lasts: float = 1.0) -> None:
        self.troubles.update(self.now, status, failure, "", worked=worked)
        self.now += lasts

    def fail(self, failure: Failure = LOST, *, worked: bool = True, lasts: float = 1.0) -> None:
        self.turn(Status.BACKOFF, failure, worked=worked, lasts=lasts)

    def run(self, lasts: float = 3.0) -> None:
        self.turn(Status.RUNNING, None, worked=False, lasts=lasts)

    @property
    def lasts(self) -> float | None:
        since = self.troubles.since(self.now)
        return None if since is None else self.now - since

    @property
    def recurs(self) -> bool:
        return self.troubles.recurring(self.now) is not None


def test_another_trouble_begins_anew() -> None:
    course = Course()
    course.fail(REFUSED, lasts=240)
    course.fail(LOST_DOWNSTREAM)
    course.fail(UNREACHABLE_DOWNSTREAM, lasts=14)
    assert (course.lasts, course.recurs) == (15, False)


def test_troubles_that_take_turns_without_a_run_all_last() -> None:
    """Where both brokers are away, sometimes the one is reported and sometimes the other."""
    course = Course()
    for _ in range(10):
        course.fail(UNREACHABLE, worked=False, lasts=5)
        course.fail(UNREACHABLE_DOWNSTREAM, worked=False, lasts=5)
    assert course.lasts == 95
    assert not course.recurs


def test_attempts_that_open_for_a_moment_end_no_trouble() -> None:
    course = Course()
    for _ in range(10):
        course.turn(Status.INVALID, REFUSED, worked=False, lasts=5)
        course.run(lasts=1)
    course.turn(Status.INVALID, REFUSED, worked=False)
    assert (course.lasts, course.recurs) == (61, False)


def test_a_link_that_is_cut_again_and_again_is_in_trouble_in_between() -> None:
    course = Course()
    for _ in range(2):
        course.run()
        course.fail()
        course.fail(UNREACHABLE)
        assert (course.lasts, course.recurs) == (2, False)
    course.run()
    course.fail()
    assert (course.lasts, course.recurs) == (14 - 3, True)
    course.run(lasts=STEADY - 1)
    spell = course.troubles.recurring(course.now)
    assert spell is not None
    assert (course.lasts, course.now - spell.first, spell.failure) == (None, 10 + STEADY, LOST)
    course.now += 1
    assert not course.recurs


def test_what_comes_back_after_a_minute_is_another_trouble() -> None:
    course = Course()
    for _ in range(5):
        course.run(lasts=STEADY)
        course.fail()
    assert (course.lasts, course.recurs) == (1, False)


def test_a_link_that_stays_down_no_longer_comes_and_goes() -> None:
    course = Course()
    for _ in range(4):
        course.run()
        course.fail()
    assert course.recurs
    course.now += STEADY
    assert (course.lasts, course.recurs) == (STEADY + 1, False)


@pytest.mark.parametrize(("status", "failure"), [(Status.BLOCKED, MEMORY), (Status.INVALID, REFUSED)])
def test_only_connections_come_and_go(status: Status, failure: Failure) -> None:
    course = Course()
    for _ in range(5):
        course.run()
        course.turn(status, failure)
    assert (course.lasts, course.recurs) == (1, False)


def test_an_alarm_that_was_over_is_another_one_for_an_idle_link_too() -> None:
    course = Course()
    course.turn(Status.BLOCKED, MEMORY, worked=False)
    course.run()
    course.turn(Status.BLOCKED, MEMORY, worked=False)
    assert course.lasts == 1


def test_restarts_by_an_operator_are_no_runs() -> None:
    course = Course()
    for _ in range(5):
        course.fail(worked=False)
        course.turn(Status.STARTING, None, worked=False)
    course.fail(worked=False)
    assert (course.lasts, course.recurs) == (11, False)
