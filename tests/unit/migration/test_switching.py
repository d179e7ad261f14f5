"""When the links of a switchover have brought everything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from agent.core.migration.objects import ObjectKey, queue_key
from agent.core.rules.names import QUEUE_PREFIX
from agent.errors import TransientError
from agent.migration.standby import open_standby
from agent.migration.switching import QUIET_FOR, SwitchingOver
from tests.unit.definitions.documents import load

TEXT: Final = """
downstream: {uri: amqp://here, management: 'http://here:15672'}
upstreams: {origin: {uri: amqp://there, management: 'http://there:15672'}}
standby: {of: origin, vhosts: {shop: }}
"""
LINK: Final = queue_key("shop", f"{QUEUE_PREFIX}orders -> here")


class Waiting(SwitchingOver):
    """With given depths of the link's queue, by the second."""

    depths: tuple[int | None, ...] = ()
    now = 0.0

    async def _cluster(self) -> str:
        return "here"

    async def _depths(self) -> dict[ObjectKey, int | None]:
        return {LINK: self.depths[min(int(self.now), len(self.depths) - 1)]}


def drained_at(tmp_path: Path, *depths: int | None, kind: type[Waiting] = Waiting) -> float:
    """The second at which all had been brought."""
    configuration = load(tmp_path, TEXT)
    settings = configuration.settings.standby
    assert settings is not None

    waiting: Waiting

    async def sleep(seconds: float) -> None:
        waiting.now += seconds

    async def work() -> None:
        nonlocal waiting
        async with open_standby(configuration, settings) as clusters:
            said: list[str] = []
            waiting = kind(configuration, settings, clusters, said.append, sleep=sleep, clock=lambda: waiting.now)
            waiting.depths = depths
            await waiting.wait_until_drained()

    asyncio.run(work())
    return waiting.now


def test_links_are_drained_once_nothing_waits_or_changes_for_a_while(tmp_path: Path) -> None:
    assert QUIET_FOR <= drained_at(tmp_path, 0) < QUIET_FOR + 3
    assert drained_at(tmp_path, 0, *[1] * 30, 0) >= 31


def test_links_are_drained_though_probes_come_and_go(tmp_path: Path) -> None:
    assert drained_at(tmp_path, *[0, 0, 1, 1] * 200) < QUIET_FOR + 3


def test_links_that_were_empty_before_something_changed_are_not_drained(tmp_path: Path) -> None:
    class Changing(Waiting):
        async def _depths(self) -> dict[ObjectKey, int | None]:
            depth = 0 if self.now < 14 else 1
            return await super()._depths() | {queue_key("shop", "orders"): depth}

    assert drained_at(tmp_path, *[0] * 14, *[2] * 40, 0, kind=Changing) >= 54


def test_links_of_other_clusters_to_the_same_source_are_not_waited_for(tmp_path: Path) -> None:
    class Federating(Waiting):
        async def _depths(self) -> dict[ObjectKey, int | None]:
            return await super()._depths() | {queue_key("shop", f"{QUEUE_PREFIX}orders -> elsewhere"): int(self.now)}

    assert QUIET_FOR <= drained_at(tmp_path, 0, kind=Federating) < QUIET_FOR + 3


def test_links_of_which_the_depth_is_not_known_are_not_drained(tmp_path: Path) -> None:
    assert drained_at(tmp_path, *[None] * 40, 0) >= 40
    with pytest.raises(TransientError, match="doesn't show how much waits"):
        drained_at(tmp_path, None)
