"""Decides which of many repeated messages are logged."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Said:
    since: float
    times: int = 1
    unsaid: int = 0


class Repeats:
    """A message is logged a few times, and then at intervals, with the number since it was last logged. One that didn't
    occur for that long counts as new.
    """

    def __init__(self, *, few: int, period: float, most: int) -> None:
        self._few = few
        self._period = period
        self._most = most
        self._said: dict[Hashable, _Said] = {}

    def hear(self, what: Hashable, now: float) -> int | None:
        """The number of suppressed repeats if it is to be logged now; None otherwise."""
        said = self._said.get(what)
        if said is not None and now - said.since < self._period:
            if said.times < self._few:
                said.times += 1
                return 0
            said.unsaid += 1
            return None
        unsaid = said.unsaid if said else 0
        self._remember(what, _Said(now, times=self._few if unsaid else 1))
        return unsaid

    def _remember(self, what: Hashable, said: _Said) -> None:
        """Drops the oldest: memory must not grow with what a peer sends."""
        self._said.pop(what, None)
        self._said[what] = said
        if len(self._said) > self._most:
            del self._said[next(iter(self._said))]
