from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from agent.core.text.repeats import Repeats


def test_a_few_are_said_and_then_one_a_period_with_their_number() -> None:
    repeats = Repeats(few=3, period=300, most=10)
    heard = [repeats.hear("a", now) for now in range(1000)]
    said = {now: unsaid for now, unsaid in enumerate(heard) if unsaid is not None}
    assert said == {0: 0, 1: 0, 2: 0, 300: 297, 600: 299, 900: 299}


def test_something_else_is_said_at_once() -> None:
    repeats = Repeats(few=1, period=300, most=10)
    assert [repeats.hear(what, 0) for what in "aabab"] == [0, None, 0, None, None]


def test_what_was_quiet_for_long_is_new() -> None:
    repeats = Repeats(few=2, period=300, most=10)
    assert [repeats.hear("a", now) for now in (0, 400, 401, 402)] == [0, 0, 0, None]


@given(st.lists(st.integers(0, 20)))
def test_it_remembers_no_more_than_it_may(heard: list[int]) -> None:
    repeats = Repeats(few=1, period=300, most=5)
    for number, what in enumerate(heard):
        repeats.hear(what, number)
    assert sum(deepcopy(repeats).hear(each, len(heard)) is None for each in range(21)) <= 5
