"""A source, its standby, and the agent beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from agent.core.rules.names import HELD_BACK, PROMOTED, SWITCHED
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
NOTED: Final = {HELD_BACK, PROMOTED, SWITCHED}


@pytest.fixture
def lent(borrowed: Borrowed) -> Iterator[Callable[[str | None], Node]]:
    """Brokers of the test's own, as a promotion is noted for a whole cluster; their quorum queues count each second, as
    the others do. What a standby leaves is removed once its agents are gone, so that the next test gets them."""
    nodes: list[Node] = []

    def one(release: str | None) -> Node:
        nodes.append(node := borrowed(release=release))
        node.eval(SET_TICK)
        return node

    yield one
    for node in nodes:
        if node.alive:
            clear(node)


def clear(node: Node) -> None:
    node.eval(UNSET_TICK)
    for vhost in node.admin.get("vhosts"):
        if vhost["name"] != "/":
            node.admin.delete_vhost(vhost["name"])
    for noted in node.admin.get("global-parameters"):
        if noted["name"] in NOTED:
            node.admin.delete("global-parameters", noted["name"])


@pytest.fixture
def standby_on(
    lab: Lab, tmp_path: Path, lent: Callable[[str | None], Node], agent_of: AgentOf
) -> Iterator[Callable[[str | None, str | None], StandbyScene]]:
    """`standby_on(None, "sid")`: a source of this machine's release, and its standby of another. Its switchovers end
    with the test, before its brokers are those of others."""
    scenes: list[StandbyScene] = []

    def made(source_release: str | None, release: str | None) -> StandbyScene:
        source, here = lent(source_release), lent(release)
        scenes.append(found := StandbyScene(lab, tmp_path, source, here, agent_of(here)))
        return found

    yield made
    for each in scenes:
        each.end_switchovers()


@pytest.fixture
def standby(standby_on: Callable[[str | None, str | None], StandbyScene]) -> StandbyScene:
    return standby_on(None, None)


@pytest.fixture
def hour(standby: StandbyScene, proxy_to: Callable[[Node | int], Proxy]) -> Iterator[Hour]:
    found = Hour(standby, proxy_to(standby.source_node), proxy_to(standby.source_node))
    yield found
    found.crowd.lose_source()
