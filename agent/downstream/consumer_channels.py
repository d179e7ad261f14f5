"""The consumers on each channel, as events report them.

Where a channel ends and its consumers with it, brokers report the end of each consumer until 3.12, and of consumers of
quorum queues; since 3.13 they report of other queues' consumers only that the channel is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

MOST: Final = 50_000
"""Channels, and consumers that matter: of further ones the end is unknown, and has to be read."""

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class ConsumerOf:
    """A consumer of a queue; `is_below`: its priority is below 0. Links to upstreams of one name have the same tag."""

    vhost: str
    queue: str
    tag: str
    is_below: bool


class ConsumerChannels:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._totals: Counter[str] = Counter()
        self._by_channel: dict[str, Counter[ConsumerOf]] = {}
        self._counts: Counter[ConsumerOf] = Counter()

    def come(self, channel: str) -> None:
        """Note one more consumer on the channel, whatever it consumes."""
        if channel in self._totals or len(self._totals) < self._most:
            self._totals[channel] += 1

    def go(self, channel: str) -> None:
        _less(self._totals, channel, 1)

    def add(self, channel: str, consumer: ConsumerOf) -> None:
        """Note which consumer has come, if it is one that matters; `come` has counted it."""
        if channel not in self._totals:
            return
        if consumer in self._counts or len(self._counts) < self._most:
            self._by_channel.setdefault(channel, Counter())[consumer] += 1
            self._counts[consumer] += 1
        else:
            self.go(channel)

    def remove(self, channel: str, consumer: ConsumerOf) -> bool:
        """Note that a consumer has gone; True if it was known."""
        found = self._by_channel.get(channel, Counter())
        if not found[consumer]:
            return False
        _less(found, consumer, 1)
        _less(self._counts, consumer, 1)
        if not found:
            del self._by_channel[channel]
        return True

    def count(self, consumer: ConsumerOf) -> int:
        """The number of these consumers on known channels."""
        return self._counts[consumer]

    def close(self, channel: str) -> tuple[Counter[ConsumerOf], int]:
        """Note that a channel is closed; returns the known consumers that end with it, and the number of all consumers
        that were known there."""
        found = self._by_channel.pop(channel, Counter())
        for consumer, count in found.items():
            _less(self._counts, consumer, count)
        return found, self._totals.pop(channel, 0)

    def forget(self, *, if_: Callable[[ConsumerOf], bool]) -> None:
        """Forget consumers that matter no more."""
        for channel, found in tuple(self._by_channel.items()):
            for consumer in [each for each in found if if_(each)]:
                _less(self._counts, consumer, found.pop(consumer))
            if not found:
                del self._by_channel[channel]

    def forget_all(self) -> None:
        for table in (self._totals, self._by_channel, self._counts):
            table.clear()


def _less(counts: Counter[_Key], key: _Key, by: int) -> None:
    counts[key] -= by
    if counts[key] <= 0:
        del counts[key]
