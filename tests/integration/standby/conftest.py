"""A source, its standby, and the agent beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, agent_of
from tests.integration.standby.hour import Hour
from tests.integration.standby.scene import StandbyScene
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy

__all__ = ["agent_of"]

SET_TICK: Final = "application:set_env(rabbit, quorum_tick_interval, 1000)."
UNSET_TICK: Final = "application:unset_env(rabbit, quorum_tick_interval)."


@pytest.fixture
def standby_on(
    lab: Lab, tmp_path: Path, borrowed: Borrowed, agent_of: AgentOf
) -> Callable[[str | None, str | None], StandbyScene]:
    """`standby_on(None, "sid")`: a source of this machine's release, and its standby of another; on brokers of the
    test's own, as a promotion is noted for a whole cluster."""

    def made(source_release: str | None, release: str | None) -> StandbyScene:
        source, here = borrowed(release=source_release), borrowed(release=release)
        return StandbyScene(lab, tmp_path, source, here, agent_of(here))

    return made


@pytest.fixture
def standby(standby_on: Callable[[str | None, str | None], StandbyScene]) -> StandbyScene:
    return standby_on(None, None)


@pytest.fixture
def hour(standby: StandbyScene, proxy_to: Callable[[Node | int], Proxy]) -> Iterator[Hour]:
    """Brokers of this test's own, whose quorum queues count each second, as the others do."""
    nodes = standby.source_node, standby.node
    for node in nodes:
        node.eval(SET_TICK)
    found = Hour(standby, proxy_to(standby.source_node), proxy_to(standby.source_node))
    yield found
    found.crowd.lose_source()
    for node in nodes:
        if node.alive:
            node.eval(UNSET_TICK)
