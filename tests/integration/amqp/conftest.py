"""Connections to the session's brokers."""

from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from agent.amqp.connect import Connection, connect
from agent.core.addresses.uri import parse
from tests.lab.waiting import DEADLINE


class Connecting(Protocol):
    async def __call__(self, uri: str, *, name: str = "test") -> Connection: ...


@pytest.fixture
async def connecting() -> AsyncIterator[Connecting]:
    """`await connecting(uri)`: a connection that is closed with the test."""
    opened: list[Connection] = []

    async def open_one(uri: str, *, name: str = "test") -> Connection:
        opened.append(await connect(parse(uri), where="upstream origin", name=name, within=DEADLINE))
        return opened[-1]

    yield open_one
    for connection in opened:
        await connection.close()
