"""What links count while they run, and what is kept of it when they are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from agent.core.links.histogram import Histogram


class Meter(Protocol):
    """The counters of a running link; read while it runs."""

    forwarded: int
    bytes: int
    redelivered: int
    returned: int
    taken: int
    given_back: int
    dropped: dict[str, int]
    quarantined: dict[str, int]

    @property
    def transfer(self) -> Histogram:
        """Seconds from delivery to confirm."""

    @property
    def binding_sync(self) -> Histogram:
        """Seconds from a change of bindings until it took effect upstream."""


class Totals:
    """The counters of links that are gone, added up."""

    def __init__(self, transfer: Sequence[float], binding_sync: Sequence[float]) -> None:
        """The bounds of the histograms."""
        self.forwarded = self.bytes = self.redelivered = self.returned = self.taken = self.given_back = 0
        self.dropped: dict[str, int] = Counter()
        self.quarantined: dict[str, int] = Counter()
        self.transfer, self.binding_sync = Histogram(transfer), Histogram(binding_sync)

    def add(self, meter: Meter) -> None:
        self.forwarded += meter.forwarded
        self.bytes += meter.bytes
        self.redelivered += meter.redelivered
        self.returned += meter.returned
        self.taken += meter.taken
        self.given_back += meter.given_back
        for reason, number in meter.dropped.items():
            self.dropped[reason] += number
        for reason, number in meter.quarantined.items():
            self.quarantined[reason] += number
        self.transfer.add(meter.transfer)
        self.binding_sync.add(meter.binding_sync)
