"""The upkeep of a running link: its bindings in step, its prefetch sized, its lag measured."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

from agent.amqp.data.splice import Counts
from agent.core.model import Binding
from agent.links.exchange.builder import EXCHANGE_OR_CANARY, Builder
from agent.links.exchange.deletion_monitor import DeletionMonitor
from agent.links.exchange.probing import Probing
from agent.links.flow import Flow
from agent.links.upkeep import Upkeep

ASSERT_ALL: Final = 25.0  # seconds for all bindings of a link that has no canary
ASSERT_PARTS: Final = 10  # at most
SHOWN_FOR: Final = 3_600.0  # that the upstream exchange was missing
NEVER: Final = math.inf
RIVAL_ENDS: Final = 5.0  # seconds in which whoever lost the queue to this link has ended its session


class ExchangeUpkeep(Upkeep):
    """The upkeep of one open session; `run` does what `tick`, `rebind` and the monitor find to do, one after
    another."""

    __slots__ = (
        "_assert_at", "_bindings", "_is_type_unknown", "_missing", "_monitor", "_must_place_canary", "_must_tidy",
        "_on_followed", "_probing", "_stale_since", "_tidy_at", "_to_assert", "building",
    )  # fmt: skip

    def __init__(
        self,
        building: Builder,
        flow: Flow,
        counts: Counts,
        bindings: frozenset[Binding],
        *,
        monitor: DeletionMonitor,
        on_followed: Callable[[], None],
        probing: Probing | None,
    ) -> None:
        """`bindings` are those that the session was opened with; `on_followed` is called when the bindings or notes to
        show may have changed."""
        super().__init__(flow, counts, building.depth)
        self.building = building
        self._monitor = monitor
        self._on_followed = on_followed
        self._probing = probing
        self._bindings = bindings
        self._stale_since: float | None = None
        self._assert_at = self._loop.time() + ASSERT_ALL / self._parts * random.random()
        self._to_assert = 0
        self._tidy_at = self._loop.time() + RIVAL_ENDS if building.built.may_have_rival else NEVER
        self._must_tidy = False
        self._missing: frozenset[str] = frozenset()
        self._is_type_unknown = False
        self._must_place_canary = False

    def rebind(self, bindings: frozenset[Binding]) -> None:
        if bindings != self._bindings:
            self._bindings = bindings
            self._stale_since = self._loop.time()
            self.wake.set()

    def tick(self, now: float, *, is_blocked: bool) -> float:
        if self._probing is not None:
            self._look_at_probes(self._probing, now, is_blocked=is_blocked)
        if now >= self._must_assert_at:
            self._assert_at = max(self._assert_at + ASSERT_ALL / self._parts, now)
            self._to_assert = max(1, -(-self.building.bound // self._parts))
            self.wake.set()
        if now >= self._tidy_at:
            self._tidy_at, self._must_tidy = NEVER, True
            self.wake.set()
        if now >= self._is_old_news_at:
            self.building.built.forget_restored()
            self._on_followed()
        waited = self.observe(now, is_blocked=is_blocked, must_look=now >= self.due_at)
        due_at = min(self.due_at, self._must_assert_at, self._tidy_at, self._is_old_news_at)
        self.rest(due_at, waits=self.waits or self._probing is not None)
        return waited

    @property
    def _must_assert_at(self) -> float:
        return self._assert_at if self.building.must_assert else NEVER

    @property
    def _is_old_news_at(self) -> float:
        at = self.building.built.restored_at
        return NEVER if at is None else at + SHOWN_FOR

    def _look_at_probes(self, probing: Probing, now: float, *, is_blocked: bool) -> None:
        flow = self._flow
        is_held = is_blocked or flow.waits_for_limit
        flow.unproved = probing.observe(now, forwarded=self._counts.forwarded, is_blocked=is_held)
        flow.unproved_by = probing.trouble_is_at
        flow.lag, flow.last_probe = probing.lag, probing.last_answer

    # What the monitor finds

    def place_canary(self) -> None:
        self._must_place_canary = True
        self.wake.set()

    def on_missing(self, name: str) -> None:
        self._missing |= {name}
        self.wake.set()

    def on_unknown_type(self) -> None:
        self._is_type_unknown = True
        self.wake.set()

    def assert_some(self, count: int) -> None:
        self._to_assert += count
        self.wake.set()

    async def run(self) -> None:
        with self._monitor.watching(self):
            await super().run()

    async def work(self) -> None:
        await self._repair()
        await self._follow()
        if self._must_place_canary:
            self._must_place_canary = False
            await self.building.ensure_canary()
            self._on_followed()
        if self._must_tidy:
            self._must_tidy = False
            await self.building.remove_rivals()
        await self.catch_up()
        if self._to_assert:
            count, self._to_assert = self._to_assert, 0
            await self.building.assert_some(count, between=self._follow)
            self._on_followed()  # it may have found the upstream exchange missing

    async def _repair(self) -> None:
        """Restore what is missing upstream; raise TransientError if the internal exchange is missing or fails, so that
        the link is built again."""
        building, missing = self.building, self._missing
        self._missing = frozenset()
        if self._is_type_unknown:
            raise building.lost("is of a type that is no longer known")
        if building.internal in missing:
            raise building.lost("was deleted")
        if building.canary in missing:
            await building.restore(EXCHANGE_OR_CANARY)
            self._on_followed()

    async def _follow(self) -> None:
        since, self._stale_since = self._stale_since, None
        if since is None:
            return
        await self.building.follow(self._bindings)
        self._counts.binding_sync.observe(self._loop.time() - since)
        self._on_followed()

    @property
    def _parts(self) -> int:
        return max(1, min(ASSERT_PARTS, self.building.bound))
