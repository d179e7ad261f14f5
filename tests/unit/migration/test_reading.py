"""Clients that may not be connected, from answers of any shape."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from agent.core.addresses import uri
from agent.errors import PermanentError
from agent.management.client import ManagementClient
from agent.migration.reading import clients_of
from tests.unit.migration.http_api import served

OURS = {"product": "federation-agent"}


async def seen(tags: object, *clients: dict[str, Any]) -> list[str]:
    answers = {"whoami": {"name": "guest", "tags": tags}, "vhosts/v/connections": [{"name": "c", **c} for c in clients]}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(answers[request.match_info["path"]])

    async with (
        served(answer) as port,
        ManagementClient([uri.parse_http(f"http://guest:guest@127.0.0.1:{port}")]) as client,
    ):
        return await clients_of(client, "source", {"v": {"agent"}})


def test_an_agent_is_none_of_them() -> None:
    agent = {"user": "agent", "client_properties": OURS}
    [found] = asyncio.run(seen(["monitoring"], agent, {"user": "shop", "peer_host": "h", "client_properties": OURS}))
    assert found == "user 'shop' of host h in vhost 'v' of the source"


@pytest.mark.parametrize("client", [{"user": []}, {"user": [], "client_properties": OURS}, {"client_properties": 5}])
def test_what_is_not_understood_is_one(client: dict[str, Any]) -> None:
    assert len(asyncio.run(seen("policymaker,monitoring", client))) == 1


def test_a_long_name_is_cut() -> None:
    name = {"connection_name": "A" * 100_000}
    [found] = asyncio.run(seen(["administrator"], {"user": "u", "client_properties": name}))
    assert len(found) < 1_000


@pytest.mark.parametrize("tags", [5, None, {}, [], [[]], "management"])
def test_a_user_who_does_not_see_all_is_refused(tags: object) -> None:
    with pytest.raises(PermanentError, match="needs the tag monitoring"):
        asyncio.run(seen(tags))
