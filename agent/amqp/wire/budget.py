"""Bounds how much of what peers send is processed in one turn of the loop.

Why: docs/decisions/0007-bounded-reads.md
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

TURN: Final = 0.005  # seconds, of all connections
LARGEST_PORTION: Final = 256 * 1024
SMALLEST_PORTION: Final = 1024
WAKING: Final = TURN / 20
"""Seconds that each response counts, since the task that waits for it works outside of the budget, and all of these
tasks in one turn: a thousand links that open or close together would keep the loop busy for seconds."""


class Turn:
    """The time that the connections of a loop have used since the last turn that one of them had to wait for: hundreds
    of them may have something to do at once. To begin anew with each turn would cost each read."""

    __slots__ = ("_begins_soon", "_call_soon", "_waiting", "spent")
    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Turn]] = WeakKeyDictionary()

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.spent = 0.0
        self._begins_soon = False
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Turn:
        """The turn that the connections of this loop share."""
        found = cls._of_loops.get(loop)
        if found is None:
            found = cls._of_loops[loop] = cls(loop.call_soon)
        return found

    @property
    def is_over(self) -> bool:
        return self.spent >= TURN

    def put_off(self, step: Callable[[], None]) -> None:
        """Call `step` in the next turn, or one after that, in the order of these calls."""
        self._waiting.append(step)
        self._begin_soon()

    def _begin_soon(self) -> None:
        if not self._begins_soon:
            self._begins_soon = True
            self._call_soon(self._begin)

    def _begin(self) -> None:
        self._begins_soon, self.spent = False, 0.0
        try:
            for _ in range(len(self._waiting)):
                if self.is_over:
                    break
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self._begin_soon()


class Budget:
    """The work that one connection may cause. It counts time, because a peer decides how expensive a byte is. A
    consumer of frames can't be interrupted, so `portion` is how many bytes it gets at once: fewer after it took longer
    than a turn, more again once it is fast.
    """

    def __init__(self, clock: Callable[[], float], turn: Turn) -> None:
        self.portion = LARGEST_PORTION
        self.turn = turn
        self._clock = clock
        self._since = 0.0

    def start(self) -> None:
        """Count work from now on."""
        self._since = self._clock()

    def is_spent(self, *, waking: bool = False) -> bool:
        """Count the work since `start`, or since the last call, and that of a task which is `waking` because of it;
        return True if the turn is over."""
        now = self._clock()
        took = now - self._since
        self._since = now
        turn = self.turn
        turn.spent += took + (WAKING if waking else 0.0)
        if took > TURN:
            self.portion = max(SMALLEST_PORTION, int(self.portion * TURN / took))
        elif self.portion < LARGEST_PORTION and took < TURN / 4:
            self.portion = min(2 * self.portion, LARGEST_PORTION)
        return turn.spent >= TURN
