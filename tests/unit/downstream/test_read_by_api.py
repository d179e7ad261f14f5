"""Whether the broker's own shovel plugin runs shovels, also where its management extension isn't enabled."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.addresses import uri
from agent.core.model import Definitions, LinkKind, NativeLink, VhostDefinitions
from agent.downstream.read_by_api import NativeShovels, look_for_plugin
from agent.management.client import ManagementClient
from tests.unit.core.some_links import shovel_link
from tests.unit.runtime.http_api import http_api

PARAMETERS = Definitions({"/": VhostDefinitions(shovels={"s": shovel_link().shovel})})
STANDS_ASIDE = {(LinkKind.SHOVEL, "/", "s", "")}


def node(*plugins: str, running: bool = True) -> dict[str, Any]:
    return {"name": "rabbit@a", "running": running, "enabled_plugins": list(plugins)}


async def look(nodes: Any, parameters: Definitions = PARAMETERS, *, has_statistics: bool = True) -> NativeShovels:
    with http_api() as api:
        api.answers["nodes"] = nodes
        async with ManagementClient([uri.parse_http(f"http://a:b@127.0.0.1:{api.port}")]) as client:
            return await look_for_plugin(client, NativeShovels(), parameters, has_statistics=has_statistics)


@pytest.mark.parametrize(("nodes", "expected"), [
    ([node("rabbitmq_management")], set()),
    ([node("rabbitmq_management"), node("rabbitmq_shovel")], STANDS_ASIDE),
    ([node("rabbitmq_management"), node("rabbitmq_shovel", running=False)], set()),
    ([{"name": "rabbit@a", "running": True}], STANDS_ASIDE),  # it has just started: not known yet
    ([{"name": "rabbit@a", "running": True, "enabled_plugins": "junk"}], STANDS_ASIDE),
])  # fmt: skip
async def test_the_nodes_show_the_plugin(nodes: Any, expected: set[NativeLink]) -> None:
    found = await look(nodes)
    assert found.of_plugin(PARAMETERS) == expected
    assert found.warnings == ()


@pytest.mark.parametrize(("nodes", "has_statistics", "why"), [
    (401, True, "monitoring"),
    (None, True, "does not exist"),
    ([{"name": "rabbit@a", "running": True}], False, "statistics"),
])  # fmt: skip
async def test_what_can_not_be_seen_is_shown(nodes: Any, *, has_statistics: bool, why: str) -> None:
    found = await look(nodes, has_statistics=has_statistics)
    assert found.of_plugin(PARAMETERS) == set()
    [warning] = found.warnings
    assert why in str(warning)
    assert "so the agent runs them" in str(warning)


async def test_nobody_is_asked_where_no_parameter_defines_a_shovel() -> None:
    assert await look(500, Definitions()) == NativeShovels()
