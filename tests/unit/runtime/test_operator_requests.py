from __future__ import annotations

from agent.core.links.lifecycle import Pause
from agent.runtime.operator_requests import ALONE_FOR, KEPT_FOR, MOST, Requests

PAUSE = Pause("ann", 1.0, "a new disk")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_last_request_of_a_link_is_taken_once() -> None:
    kept = Requests(Clock())
    kept.keep("a", "pause", PAUSE)
    kept.keep("b", "restart", None)
    kept.keep("a", "resume", None)
    found = kept.take("a")
    assert found is not None and (found.action, found.pause) == ("resume", None)
    assert kept.take("a") is None
    assert kept.take("b") is not None


def test_old_ones_are_forgotten() -> None:
    clock = Clock()
    kept = Requests(clock)
    kept.keep("a", "pause", PAUSE)
    clock.now = KEPT_FOR / 2
    kept.keep("b", "pause", PAUSE)
    clock.now = KEPT_FOR
    assert kept.take("a") is None
    assert kept.take("b") is not None


def test_what_is_kept_for_less_is_forgotten_sooner() -> None:
    clock = Clock()
    kept = Requests(clock)
    kept.keep("a", "pause", PAUSE)
    kept.keep("b", "pause", PAUSE, kept_for=ALONE_FOR)
    clock.now = ALONE_FOR
    assert kept.take("b") is None
    assert kept.take("a") is not None


def test_none_counts_once_nothing_is_heard() -> None:
    kept = Requests(Clock())
    kept.keep("a", "pause", PAUSE)
    kept.clear()
    assert kept.take("a") is None


def test_of_too_many_the_oldest_goes() -> None:
    kept = Requests(Clock())
    for number in range(MOST + 1):
        kept.keep(str(number), "pause", PAUSE)
    assert kept.take("0") is None
    assert kept.take("1") is not None
