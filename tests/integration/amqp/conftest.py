"""Connections to the session's brokers."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest

from agent.amqp.connect import Connection, connect
from agent.core.addresses.uri import parse
from tests.lab.node import Node

RELEASES = [None, pytest.param("trixie", marks=pytest.mark.versions), pytest.param("sid", marks=pytest.mark.versions)]


class Connecting(Protocol):
    async def __call__(self, uri: str, *, name: str = "test") -> Connection: ...


@pytest.fixture(params=RELEASES)
def any_broker(request: pytest.FixtureRequest, broker: Node, broker_on: Callable[..., Node]) -> Node:
    """A broker of every release in turn."""
    return broker if request.param is None else broker_on(request.param)


@pytest.fixture
async def connecting() -> AsyncIterator[Connecting]:
    """`await connecting(uri)`: a connection that is closed with the test."""
    opened: list[Connection] = []

    async def open_one(uri: str, *, name: str = "test") -> Connection:
        opened.append(await connect(parse(uri), where="upstream origin", name=name, within=10))
        return opened[-1]

    yield open_one
    for connection in opened:
        await connection.close()
