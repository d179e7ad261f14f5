"""How much of one peer's data is processed before all others have a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TURN: Final = 0.005  # seconds until all others have had a turn
LARGEST_PORTION: Final = 256 * 1024
SMALLEST_PORTION: Final = 1024
WAKING: Final = TURN / 20
"""Counts for each answer, as whoever waits for it does its work outside of the budget, and all of them in one turn: a
thousand links that open or close together would keep the loop for seconds."""


class Budget:
    """The work that one connection may cause until all others have had a turn. It counts time, because a peer decides
    how expensive a byte is; and it counts over many reads, since to begin anew with each turn would cost each read. A
    consumer of frames can't be interrupted, so `portion` is how many bytes it gets at once: fewer after it took longer
    than a turn, more again once it is fast.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.portion = LARGEST_PORTION
        self._clock = clock
        self._spent = 0.0
        self._since = 0.0

    def renew(self) -> None:
        """All others have had their turn."""
        self._spent = 0.0

    def start(self) -> None:
        """Work from now on counts."""
        self._since = self._clock()

    def is_spent(self, *, waking: bool = False) -> bool:
        """Counts the work since `start`, or since the last call, and that of a task which is `waking` because of it."""
        now = self._clock()
        took = now - self._since
        self._since = now
        self._spent += took + (WAKING if waking else 0.0)
        if took > TURN:
            self.portion = max(SMALLEST_PORTION, int(self.portion * TURN / took))
        elif self.portion < LARGEST_PORTION and took < TURN / 4:
            self.portion = min(2 * self.portion, LARGEST_PORTION)
        return self._spent >= TURN
