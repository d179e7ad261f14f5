"""How large a prefetch becomes, and how long a limited link pauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.links import read_limits
from agent.core.links.read_limits import (
    BURST,
    BYTES_ON_THE_WAY,
    LEAST_PREFETCH,
    MOST_HELD,
    MOST_PREFETCH,
    NEAR_PREFETCH,
    START_PREFETCH,
    RateLimit,
    TokenBuckets,
)


def settles_at(round_trip: float, *, limit: float = 25_000.0, average_size: float = 1024) -> tuple[int, int]:
    """The size, and how many steps it took, of a path on which as much flows as the size lets through."""
    current, steps = START_PREFETCH, 0
    while True:
        rate = min(limit, current / (round_trip + 0.01))
        unsettled = current - int(rate * round_trip)
        wanted = read_limits.sized(
            current, unsettled=unsettled, rate=rate, round_trip=round_trip, average_size=average_size
        )
        if wanted == current:
            return current, steps
        current, steps = wanted, steps + 1


@given(
    st.integers(LEAST_PREFETCH, MOST_PREFETCH),
    st.integers(0, MOST_PREFETCH),
    st.floats(0, 1e6),
    st.floats(0, 10),
    st.floats(0, 1e9),
)
def test_twice_the_bytes_that_may_be_on_the_way_never_stay(
    current: int, unsettled: int, rate: float, round_trip: float, average_size: float
) -> None:
    wanted = read_limits.sized(
        current, unsettled=unsettled, rate=rate, round_trip=round_trip, average_size=average_size
    )
    assert LEAST_PREFETCH <= wanted <= MOST_PREFETCH
    assert wanted <= 2 * LEAST_PREFETCH or wanted * average_size <= 2 * BYTES_ON_THE_WAY


@given(
    st.integers(LEAST_PREFETCH, MOST_PREFETCH),
    st.integers(0, MOST_PREFETCH),
    st.floats(0, 1e6),
    st.floats(0, 10),
    st.floats(0, 1e9),
)
def test_a_change_is_worth_its_consumer(
    current: int, unsettled: int, rate: float, round_trip: float, average_size: float
) -> None:
    wanted = read_limits.sized(
        current, unsettled=unsettled, rate=rate, round_trip=round_trip, average_size=average_size
    )
    assert wanted == current or wanted >= 2 * current or 2 * wanted <= current


def test_a_long_path_is_filled_in_few_steps_and_then_left_alone() -> None:
    assert settles_at(0.1) == (MOST_PREFETCH, 2)


def test_a_short_path_gets_what_keeps_its_ends_from_waiting_and_no_more() -> None:
    assert settles_at(0.0002) == (NEAR_PREFETCH, 1)


def test_what_is_not_used_does_not_grow() -> None:
    assert (
        read_limits.sized(START_PREFETCH, unsettled=300, rate=1_000, round_trip=0.1, average_size=1024)
        == START_PREFETCH
    )


def test_large_messages_shrink_it() -> None:
    assert (
        read_limits.sized(START_PREFETCH, unsettled=START_PREFETCH, rate=10, round_trip=0.1, average_size=1024 * 1024)
        == 32
    )
    assert (
        read_limits.sized(START_PREFETCH, unsettled=START_PREFETCH, rate=10, round_trip=0.1, average_size=1024**3)
        == LEAST_PREFETCH
    )


@given(st.integers(1, 65_535), st.integers(0, 5 * MOST_PREFETCH))
def test_what_is_held_leaves_room_for_others_in_few_steps(flowing: int, held: int) -> None:
    """As an upstream does that has any number of messages which are held, and fills what is let in."""
    room, steps = 0, 0
    while (wanted := read_limits.room_for(min(held, flowing + room), room, flowing=flowing)) != room:
        assert room < wanted <= MOST_HELD
        room, steps = wanted, steps + 1
    assert room == MOST_HELD or flowing + room - held > flowing / 2 - 1
    assert steps <= (held if flowing == 1 else 20)


LIMITS = st.builds(RateLimit, messages=st.none() | st.integers(1, 100_000), bytes=st.none() | st.integers(1, 10**9))
READS = st.lists(
    st.tuples(st.floats(0, 5), st.integers(0, 2_000), st.integers(0, 10**6)), max_size=40
)  # each after so long a wait beyond the pause, with so much
NEARLY = 1e-6


@given(LIMITS, READS)
def test_in_any_time_no_more_is_read_than_a_burst_the_rate_and_one_read(
    limit: RateLimit, reads: list[tuple[float, int, int]]
) -> None:
    buckets, now, pause = TokenBuckets(limit, 7.0), 7.0, 0.0
    read: list[tuple[float, int, int]] = []
    for wait, messages, octets in reads:
        now += pause + wait
        pause = buckets.take(now, messages, octets)
        read.append((now, messages, octets))
    for unit, rate in ((1, limit.messages), (2, limit.bytes)):
        for first in range(len(read)):
            total = 0.0
            for at in range(first, len(read)):
                allowed = (rate or 0) * (read[at][0] - read[first][0] + BURST)
                assert rate is None or total <= allowed * (1 + NEARLY), "before the read that may be the one too many"
                total += read[at][unit]


@given(LIMITS, READS)
def test_no_pause_is_longer_than_what_was_read_takes(limit: RateLimit, reads: list[tuple[float, int, int]]) -> None:
    """A link that waits for each pause never waits for what it has waited for before."""
    buckets, now, pause = TokenBuckets(limit, 0.0), 0.0, 0.0
    for wait, messages, octets in reads:
        now += pause + wait
        assert buckets.pause(now) <= NEARLY
        pause = buckets.take(now, messages, octets)
        assert pause <= max(messages / (limit.messages or 10**12), octets / (limit.bytes or 10**15)) + NEARLY
        assert buckets.pause(now) == pause


@given(st.integers(1, 5_000), st.integers(1, 300), st.integers(1, 120))
def test_a_link_with_enough_to_read_reads_as_much_as_it_may(rate: int, of_a_read: int, seconds: int) -> None:
    buckets, now, total = TokenBuckets(RateLimit(messages=rate), 0.0), 0.0, 0
    while now < seconds:
        total += of_a_read
        now += buckets.take(now, of_a_read, 0)
    assert rate * seconds <= total * (1 + NEARLY)
    assert total <= rate * seconds + of_a_read + NEARLY


def test_a_burst_is_what_a_second_brings_after_a_second_without() -> None:
    buckets = TokenBuckets(RateLimit(messages=100), 0.0)
    assert buckets.take(0.0, 1, 0) == pytest.approx(0.01), "it begins empty, so that no restart brings a burst"
    assert buckets.take(60.0, 100, 0) == 0.0
    assert buckets.take(60.0, 50, 0) == pytest.approx(0.5)


def test_both_limits_hold() -> None:
    buckets = TokenBuckets(RateLimit(messages=10, bytes=1_000), 0.0)
    assert buckets.take(0.0, 10, 500) == pytest.approx(1.0)
    assert buckets.take(1.0, 1, 5_000) == pytest.approx(4.5), "half a second of bytes was left"
    assert buckets.take(5.5, 1, 0) == 0.0


def test_a_changed_limit_leaves_what_was_paid_for() -> None:
    buckets = TokenBuckets(RateLimit(messages=100), 0.0)
    assert buckets.take(0.0, 50, 0) == pytest.approx(0.5)
    buckets.limit = RateLimit(messages=1)
    assert buckets.pause(0.0) == pytest.approx(0.5)
    buckets.limit = RateLimit()
    assert buckets.pause(0.0) == buckets.take(0.0, 10**6, 10**6) == 0.0


def test_a_prefetch_brings_no_more_than_a_burst() -> None:
    assert RateLimit(messages=300).prefetch(None) == RateLimit(messages=300).prefetch(10**9) == 300
    assert RateLimit(bytes=1_000_000).prefetch(None) == 15
    assert RateLimit(bytes=1_000_000).prefetch(100.0) == 10_000
    assert RateLimit(messages=50, bytes=1_000_000).prefetch(100.0) == 50
    assert RateLimit(bytes=1).prefetch(10**6) == RateLimit(messages=1).prefetch(0.0) == 1
    assert RateLimit(messages=10**9).prefetch(0.0) == read_limits.LARGEST_PREFETCH


def test_it_reads_as_people_write_it() -> None:
    assert str(RateLimit(1_000, 2_000_000)) == "1,000 messages/s and 2,000,000 bytes/s"
    assert str(RateLimit(bytes=5)) == "5 bytes/s"
