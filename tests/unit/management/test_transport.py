"""The parts of the HTTP API's client that need no broker."""

from __future__ import annotations

import pytest

from agent.core.http_url import parse
from agent.management.client import ManagementClient


async def test_needs_an_address() -> None:
    with pytest.raises(ValueError, match="no address"):
        ManagementClient([])


async def test_is_used_inside_async_with() -> None:
    client = ManagementClient([parse("http://127.0.0.1:1")])
    with pytest.raises(RuntimeError, match="async with"):
        await client.vhosts()


async def test_shows_no_password() -> None:
    client = ManagementClient([parse("http://u:S3NTINEL@127.0.0.1:1")])
    assert "S3NTINEL" not in f"{client!r} {vars(client)} {vars(vars(client)['_transport'])}"
