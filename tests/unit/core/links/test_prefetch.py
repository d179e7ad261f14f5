from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.links import prefetch
from agent.core.links.prefetch import BYTES_ON_THE_WAY, LEAST, MOST, MOST_HELD, NEAR, START


def settles_at(round_trip: float, *, limit: float = 25_000.0, average_size: float = 1024) -> tuple[int, int]:
    """The size, and how many steps it took, of a path on which as much flows as the size lets through."""
    current, steps = START, 0
    while True:
        rate = min(limit, current / (round_trip + 0.01))
        unsettled = current - int(rate * round_trip)
        wanted = prefetch.sized(
            current, unsettled=unsettled, rate=rate, round_trip=round_trip, average_size=average_size
        )
        if wanted == current:
            return current, steps
        current, steps = wanted, steps + 1


@given(st.integers(LEAST, MOST), st.integers(0, MOST), st.floats(0, 1e6), st.floats(0, 10), st.floats(0, 1e9))
def test_twice_the_bytes_that_may_be_on_the_way_never_stay(
    current: int, unsettled: int, rate: float, round_trip: float, average_size: float
) -> None:
    wanted = prefetch.sized(current, unsettled=unsettled, rate=rate, round_trip=round_trip, average_size=average_size)
    assert LEAST <= wanted <= MOST
    assert wanted <= 2 * LEAST or wanted * average_size <= 2 * BYTES_ON_THE_WAY


@given(st.integers(LEAST, MOST), st.integers(0, MOST), st.floats(0, 1e6), st.floats(0, 10), st.floats(0, 1e9))
def test_a_change_is_worth_its_consumer(
    current: int, unsettled: int, rate: float, round_trip: float, average_size: float
) -> None:
    wanted = prefetch.sized(current, unsettled=unsettled, rate=rate, round_trip=round_trip, average_size=average_size)
    assert wanted == current or wanted >= 2 * current or 2 * wanted <= current


def test_a_long_path_is_filled_in_few_steps_and_then_left_alone() -> None:
    assert settles_at(0.1) == (MOST, 2)


def test_a_short_path_gets_what_keeps_its_ends_from_waiting_and_no_more() -> None:
    assert settles_at(0.0002) == (NEAR, 1)


def test_what_is_not_used_does_not_grow() -> None:
    assert prefetch.sized(START, unsettled=300, rate=1_000, round_trip=0.1, average_size=1024) == START


def test_large_messages_shrink_it() -> None:
    assert prefetch.sized(START, unsettled=START, rate=10, round_trip=0.1, average_size=1024 * 1024) == 32
    assert prefetch.sized(START, unsettled=START, rate=10, round_trip=0.1, average_size=1024**3) == LEAST


@given(st.integers(1, 65_535), st.integers(0, 5 * MOST))
def test_what_is_held_leaves_room_for_others_in_few_steps(flowing: int, held: int) -> None:
    """As an upstream does that has any number of messages which are held, and fills what is let in."""
    room, steps = 0, 0
    while (wanted := prefetch.room_for(min(held, flowing + room), room, flowing=flowing)) != room:
        assert room < wanted <= MOST_HELD
        room, steps = wanted, steps + 1
    assert room == MOST_HELD or flowing + room - held > flowing / 2 - 1
    assert steps <= (held if flowing == 1 else 20)
