"""Numbers that are done, in whichever order and however often they are named."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.amqp10.link import DoneNumbers

RUNS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=40)


@given(runs=RUNS)
def test_they_are_those_of_a_set(runs: list[tuple[int, int]]) -> None:
    done, expected = DoneNumbers(), set[int]()
    for first, more in runs:
        done.add(first, first + more)
        expected.update(range(first, first + more + 1))
        assert done.count == len(expected)
        assert done.up_to == next(number for number in range(80) if number + 1 not in expected)
        assert [number in done for number in range(1, 80)] == [number in expected for number in range(1, 80)]


def test_what_stays_open_takes_no_memory_for_what_passes_behind_it() -> None:
    done = DoneNumbers()
    for number in range(2, 100_002):
        done.add(number, number)
    assert (done.up_to, done.count, len(done._runs)) == (0, 100_000, 2)  # noqa: SLF001 - that is what it is for
    done.add(1, 1)
    assert (done.up_to, done.count) == (100_001, 100_001)
