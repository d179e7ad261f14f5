"""A loop whose time passes as soon as nobody has anything to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everyone waits for everyone else, forever"
        self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    @property
    def timers(self) -> int:
        """How many wait to do something."""
        return sum(not each.cancelled() for each in self._scheduled)  # type: ignore[attr-defined]

    def work_for(self, seconds: float) -> None:
        """Nothing else happens meanwhile."""
        self._virtual.now += seconds


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    async def to_its_end() -> T:
        try:
            return await work
        finally:
            await asyncio.sleep(0)  # tasks that ended at the same moment have yet to hand over their errors

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(to_its_end())
