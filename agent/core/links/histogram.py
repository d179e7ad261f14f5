"""Durations in cumulative buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Histogram:
    """`bounds` are the upper, inclusive ends of the buckets; longer durations than the last are counted too."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def add(self, other: Histogram) -> None:
        """Add the counts of a histogram with the same bounds."""
        self.sum += other.sum
        self._counts = [mine + its for mine, its in zip(self._counts, other._counts, strict=True)]

    @property
    def cumulative(self) -> Iterator[int]:
        """The number of durations up to each bound, and the total at the end."""
        return accumulate(self._counts)
