from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core import prefetch
from agent.core.prefetch import BYTES_ON_THE_WAY, LEAST, MOST, START


@given(st.integers(LEAST, MOST), st.floats(0, 1e6), st.floats(0, 1e9))
def test_the_bytes_on_the_way_are_bounded(current: int, occupied: float, average_size: float) -> None:
    wanted = prefetch.sized(current, occupied=occupied, average_size=average_size)
    assert LEAST <= wanted <= MOST
    assert wanted == LEAST or wanted * average_size <= BYTES_ON_THE_WAY


def test_a_long_path_is_filled_in_few_steps_and_then_left_alone() -> None:
    current, steps = START, 0
    while True:
        rate = min(25_000.0, current / 0.1)
        wanted = prefetch.sized(current, occupied=prefetch.on_the_way(rate, 0.1, in_flight=0), average_size=1024)
        if wanted == current:
            break
        assert prefetch.is_worth_it(current, wanted)
        current, steps = wanted, steps + 1
    assert (current, steps) == (4_000, 1)


def test_a_short_path_needs_no_more_than_the_start() -> None:
    assert prefetch.sized(START, occupied=prefetch.on_the_way(20_000, 0.001, in_flight=300), average_size=1024) == START


def test_large_messages_shrink_it() -> None:
    assert prefetch.sized(START, occupied=1_000, average_size=1024 * 1024) == 32
    assert prefetch.sized(START, occupied=1_000, average_size=1024**3) == LEAST


def test_small_changes_are_not_worth_a_new_consumer() -> None:
    assert not prefetch.is_worth_it(1_000, 900)
    assert prefetch.is_worth_it(1_000, 500)
