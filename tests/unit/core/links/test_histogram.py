from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.histogram import Histogram


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 5))))
def test_each_bucket_counts_what_took_no_longer(observed: list[tuple[float, int]]) -> None:
    histogram = Histogram((0.1, 1.0, 5.0))
    for value, times in observed:
        histogram.observe(value, times)
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.cumulative, strict=True):
        assert count == sum(times for value, times in observed if value <= bound)


def test_two_of_the_same_bounds_are_added() -> None:
    one, other = Histogram((0.1, 1.0)), Histogram((0.1, 1.0))
    one.observe(0.05, 2)
    other.observe(0.5, 3)
    other.observe(7.0)
    one.add(other)
    assert list(one.cumulative) == [2, 5, 6]
    assert one.sum == 0.1 + 1.5 + 7.0
