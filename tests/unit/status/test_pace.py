"""The rate of a link, as page, commands and API show it."""

from __future__ import annotations

import pytest

from agent.status.pace import WINDOW, Pace


def moving(seconds: int, each: int, *, begin: float = 0.0) -> Pace:
    pace = Pace(begin, 1_000)
    for second in range(1, seconds + 1):
        pace.note(begin + second, 1_000 + each * second)
    return pace


def test_it_is_the_average_of_the_last_seconds() -> None:
    assert moving(100, 18).rate(100.4, 1_000 + 1_800) == pytest.approx(18, rel=0.1)
    assert moving(3, 18).rate(3, 1_054) == 18


def test_it_falls_to_zero_by_itself() -> None:
    pace = moving(100, 18)
    assert 0 < pace.rate(105, 2_800) < 18
    assert pace.rate(100 + WINDOW + 1, 2_800) == 0


def test_what_begins_to_move_after_a_rest_is_not_averaged_over_the_rest() -> None:
    pace = Pace(0, 5)
    pace.note(1_000, 25)
    assert pace.rate(1_000, 25) == 20 / WINDOW


def test_a_total_that_shrinks_and_a_clock_that_is_set_back_begin_anew() -> None:
    pace = moving(100, 18)
    pace.note(101, 10)
    assert pace.rate(103, 30) == 10
    pace.note(50, 30)
    assert pace.rate(52, 40) == 5
