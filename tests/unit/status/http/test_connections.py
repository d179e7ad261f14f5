"""What HTTP clients may take of the agent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from agent.amqp.data.splice import Counts
from agent.core.links.lifecycle import LinkState
from agent.status.entry import Gauges
from agent.status.http.connections import (
    HEAD_WITHIN,
    IDLE,
    MOST_BODY,
    MOST_UNREAD,
    STALLED_AFTER,
    most_connections,
    spare_connections,
)
from tests.lab.waiting import eventually_async
from tests.unit.status.serving import Serve, Served
from tests.unit.status.test_board import LINK

TURNS = 20  # of the loop
REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(("descriptors", "most"), [(20, 16), (256, 51), (1024, 204), (1_048_576, 512)])
def test_links_keep_most_descriptors(descriptors: int, most: int) -> None:
    assert most_connections(descriptors) == most
    assert descriptors < 64 or most + spare_connections(most) <= descriptors / 4


async def turns() -> None:
    """Whatever has come to this machine's sockets is read and answered."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Client:
    """A socket that says what it likes."""

    def __init__(self, served: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", served.port))
        self.socket.setblocking(False)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)
        await turns()

    async def read(self) -> bytes:
        """What comes next; nothing at the end."""
        async with asyncio.timeout(5):
            return await asyncio.get_running_loop().sock_recv(self.socket, 2**16)

    async def is_closed(self) -> bool:
        await turns()
        try:
            return not self.socket.recv(2**16)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def connect(served: Served, closing: ExitStack) -> Client:
    """One after another, as the clock shows it."""
    served.later += 0.1
    client = Client(served)
    closing.callback(client.socket.close)
    await turns()
    return client


async def later(served: Served, seconds: float) -> None:
    served.later += seconds
    served.server.connections.sweep()
    await turns()


async def test_who_sends_nothing_is_disconnected(serve: Serve, closing: ExitStack) -> None:
    served = await serve()
    client = await connect(served, closing)
    await later(served, HEAD_WITHIN - 2)
    assert not await client.is_closed()
    await later(served, 2)
    assert await client.is_closed()


async def test_a_head_that_comes_byte_by_byte_is_cut_in_time(serve: Serve, closing: ExitStack) -> None:
    served = await serve()
    client = await connect(served, closing)
    for number in range(int(HEAD_WITHIN)):
        assert not await client.is_closed(), number
        await client.send(REQUEST[number : number + 1])
        await later(served, 1)
    assert await client.is_closed()


async def test_a_connection_is_kept_between_requests_for_a_while(serve: Serve, closing: ExitStack) -> None:
    served = await serve()
    client = await connect(served, closing)
    for _ in range(3):
        await client.send(REQUEST)
        assert b" 200 OK" in await client.read()
        await later(served, IDLE - 1)
    await client.send(REQUEST[:5])
    await later(served, HEAD_WITHIN - 2)
    assert not await client.is_closed()
    await later(served, 2)
    assert await client.is_closed()


async def test_the_most_useless_connection_goes_for_a_new_one(serve: Serve, closing: ExitStack) -> None:
    served = await serve()
    served.server.connections.most = 5
    first = await connect(served, closing)
    others = [await connect(served, closing) for _ in range(4)]
    await first.send(REQUEST)
    await first.read()
    assert (await served.ask("/livez"))[0] == 200
    assert [await each.is_closed() for each in (first, *others)] == [False, True, False, False, False]


async def test_of_those_that_read_too_slowly_no_more_are_disconnected_than_memory_needs(
    serve: Serve, closing: ExitStack
) -> None:
    served = await serve()
    connections = served.server.connections
    for number in range(60):
        served.board.put(replace(LINK, id=f"{number:08x}", name="n" * 100_000), LinkState(), Counts(), Gauges)
    clients = [await connect(served, closing) for _ in range(3)]
    for client in clients:
        await client.send(b"GET /api/links HTTP/1.1\r\nHost: localhost\r\n\r\n")

    async def are_unsent() -> bool:
        await turns()
        return sum(each.held > 0 for each in connections) == len(clients)

    await eventually_async(are_unsent, what="their answers are unsent")
    connections.most_held = sum(each.held for each in connections) - 1
    await later(served, STALLED_AFTER)
    assert len(connections) == len(clients) - 1


async def test_where_all_are_served_a_new_one_is_refused(serve: Serve, closing: ExitStack) -> None:
    served = await serve()
    reader = await connect(served, closing)
    await reader.send(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.read()
    served.server.connections.most = 1
    other = await connect(served, closing)
    assert (await other.read()).startswith(b"HTTP/1.1 503 ")
    assert await other.is_closed()
    assert served.board.readers == 1


async def test_readers_of_events_leave_room_for_others(serve: Serve) -> None:
    served = await serve()
    served.server.connections.most = 4
    with served.board.feed(), served.board.feed():
        assert (await served.ask("/api/events"))[0] == 503


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"x" * 8000 + b"\r\n",
        b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HTTP/1.1\r\n",
    ],
)
async def test_nobody_sends_without_end(serve: Serve, closing: ExitStack, endless: bytes) -> None:
    served = await serve()
    client = await connect(served, closing)
    try:
        await client.send(endless)
        for number in range(2 * MOST_UNREAD // 4096):
            await client.send(b"X%d: %s\r\n" % (number, b"x" * 4096))
    except ConnectionError:
        pass

    async def is_gone() -> bool:
        return len(served.server.connections) == 0

    await eventually_async(is_gone, what="the connection is closed")
    assert served.board.readers == 0


async def test_who_asks_on_without_waiting_gets_one_answer(serve: Serve, closing: ExitStack) -> None:
    served = await serve()
    client = await connect(served, closing)
    await client.send(REQUEST * 20)
    assert (await client.read()).count(b" 200 OK") == 1
    assert await client.is_closed()


async def test_a_large_body_is_refused(serve: Serve, closing: ExitStack) -> None:
    served = await serve()
    client = await connect(served, closing)
    head = f"POST /api/links/x/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MOST_BODY + 1}\r\n\r\n"
    await client.send(head.encode())
    assert (await client.read()).startswith(b"HTTP/1.1 413 ")


async def test_unsent_answers_are_bounded_in_memory(serve: Serve, closing: ExitStack) -> None:
    served = await serve()
    connections = served.server.connections
    connections.most_held = 4 * 2**20
    for number in range(60):
        served.board.put(replace(LINK, id=f"{number:08x}", name="n" * 100_000), LinkState(), Counts(), Gauges)
    answer = len(str((await served.ask("/api/links"))[1]))
    clients = [await connect(served, closing) for _ in range(8)]
    for client in clients:
        await client.send(b"GET /api/links HTTP/1.1\r\nHost: localhost\r\n\r\n")
    most = 0

    async def is_full() -> bool:
        nonlocal most
        most = max(most, sum(each.held for each in connections))
        served.later += 0.02
        return most > connections.most_held / 4

    await eventually_async(is_full, 30, what="answers are unsent")
    for _ in range(50):
        await turns()
        await is_full()
    assert most < connections.most_held + 2 * answer  # two are made at once
    await later(served, 2)
    assert (await served.ask("/api/links"))[0] == 200
