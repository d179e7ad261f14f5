"""How much of what one peer sent is worked through before everybody else has a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TURN: Final = 0.005  # seconds of one turn of the loop
LARGEST_PORTION: Final = 256 * 1024
SMALLEST_PORTION: Final = 1024


class Budget:
    """Of one connection, for one turn of the loop. It counts time, because a peer decides what a byte costs.

    A consumer of frames can't be interrupted, so `portion` is how many bytes it gets at once: fewer after it took
    longer than a turn, more again once it is quick.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.portion = LARGEST_PORTION
        self._clock = clock
        self._spent = 0.0
        self._since = 0.0

    def renew(self) -> None:
        """A new turn begins."""
        self._spent = 0.0

    def start(self) -> None:
        """What is done from now on counts."""
        self._since = self._clock()

    def is_spent(self) -> bool:
        """Counts what was done since `start`, or since this was asked last."""
        now = self._clock()
        took = now - self._since
        self._since = now
        self._spent += took
        if took > TURN:
            self.portion = max(SMALLEST_PORTION, int(self.portion * TURN / took))
        elif self.portion < LARGEST_PORTION and took < TURN / 4:
            self.portion = min(2 * self.portion, LARGEST_PORTION)
        return self._spent >= TURN
