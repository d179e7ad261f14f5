"""Server-sent events over a real socket, while a board changes."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from agent.amqp.data.splice import Counts
from agent.core.links.lifecycle import LinkState
from agent.status.entry import Gauges
from agent.status.http import api
from agent.status.http.api import HEARTBEAT
from agent.status.http.connections import PATIENCE
from agent.status.views import link_view
from tests.lab.waiting import eventually_async
from tests.unit.status.serving import TOKEN, Serve, Served
from tests.unit.status.test_board import BROKEN, LINK, RUNNING

OTHER = replace(LINK, id="deadbeef", name="bills")
Next = Callable[[], Any]


@asynccontextmanager
async def reading(served: Served, query: str = "") -> AsyncIterator[Next]:
    """`await next()`: the name and the data of the next event; none at the end."""
    url = f"{served.url}/api/events{query}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.content_type == "text/event-stream"

        async def block() -> tuple[str, Any]:
            async with asyncio.timeout(90):
                lines = (await answer.content.readuntil(b"\n\n")).decode().splitlines()
            if not lines:
                return "", None
            if not lines[0].startswith("event: "):
                return await block()
            return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))

        yield block


async def test_first_all_links_then_what_becomes_of_them(serve: Serve) -> None:
    served = await serve()
    board = served.board
    async with reading(served) as event:
        name, links = await event()
        assert (name, [link["id"] for link in links]) == ("links", [LINK.id])
        assert links == [link_view(board, board[LINK.id])]
        board.changed(LINK.id, RUNNING)
        name, link = await event()
        assert (name, link["status"]) == ("link", "running")
        board.put(OTHER, LinkState(), Counts(), Gauges)
        assert await event() == ("link", link_view(board, board[OTHER.id]))
        board.gone(LINK.id)
        assert await event() == ("gone", {"id": LINK.id})


async def test_counters_come_with_the_tick_and_only_of_links_that_moved(serve: Serve) -> None:
    served = await serve()
    counts = Counts()
    served.board.put(OTHER, RUNNING, counts, lambda: Gauges(in_flight=1, backlog=5, oldest_in_flight=0.25))
    async with reading(served) as event:
        await event()
        counts.forwarded += 7
        served.board.moved(OTHER.id)
        served.board.tick()
        name, samples = await event()
        assert name == "samples"
        [only] = samples
        assert (only["id"], only["forwarded"], only["in_flight"], only["backlog"]) == (OTHER.id, 7, 1, 5)
        assert (only["oldest_unconfirmed_seconds"], only["last_confirm"]) == (0.25, "2027-01-15T08:00:00.000Z")


async def test_what_changes_often_is_told_as_it_is_at_last(serve: Serve) -> None:
    served = await serve()
    async with reading(served) as event:
        await event()
        for _ in range(100):
            served.board.changed(LINK.id, BROKEN)
            served.board.changed(LINK.id, RUNNING)
        served.board.gone(LINK.id)
        served.board.put(LINK, LinkState(), Counts(), Gauges)
        assert await event() == ("gone", {"id": LINK.id})
        name, link = await event()
        assert (name, link["status"]) == ("link", "starting")
        served.board.changed(LINK.id, RUNNING)
        assert (await event())[1]["status"] == "running"


async def test_the_end_of_the_agent_ends_it(serve: Serve) -> None:
    served = await serve()
    async with reading(served) as event:
        await event()
        async with asyncio.timeout(90):
            await served.server.stop()
        assert await event() == ("", None)
    assert served.board.readers == 0


async def test_a_browser_gives_its_token_in_the_address(serve: Serve) -> None:
    served = await serve(host="0.0.0.0", token=TOKEN)
    async with reading(served, f"?access_token={TOKEN}") as event:
        assert (await event())[0] == "links"
    assert (await served.ask("/api/events?access_token=wrong"))[0] == 401
    assert (await served.ask(f"/api/links?access_token={TOKEN}"))[0] == 401


async def test_there_is_room_for_so_many_readers(serve: Serve) -> None:
    served = await serve()
    with ExitStack() as readers:
        for _ in range(api.MOST_READERS):
            readers.enter_context(served.board.feed())
        assert (await served.ask("/api/events"))[0] == 503


async def test_a_reader_that_takes_nothing_is_disconnected(serve: Serve) -> None:
    served = await serve()
    for number in range(1000):
        served.board.put(replace(LINK, id=f"{number:08x}", name="n" * 250), LinkState(), Counts(), Gauges)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # its system takes little for it, too
        client.connect(("127.0.0.1", served.port))
        client.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await readers(served, 1)
        async with asyncio.timeout(90):
            while served.board.readers:
                for entry in served.board:
                    served.board.moved(entry.link.id)
                served.board.tick()
                await asyncio.sleep(0.01)
                served.later += 1.0
                served.server.connections.sweep()
    assert served.later > PATIENCE


async def until_read(client: socket.socket, end: bytes) -> None:
    read = b""
    client.setblocking(False)
    while end not in read:
        read += await asyncio.get_running_loop().sock_recv(client, 2**16)


async def readers(served: Served, count: int) -> None:
    """In less time than until the next comment, which would show that a reader has left."""

    async def there() -> bool:
        return served.board.readers == count

    await eventually_async(there, 0.9 * HEARTBEAT, what=f"{count} readers")


@pytest.mark.parametrize("leave", ["half-closed", "reset"])
async def test_a_reader_that_leaves_frees_its_place_at_once(serve: Serve, leave: str) -> None:
    served = await serve()
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await readers(served, 1)
        await until_read(client, b"\n\n")  # the list is sent, nothing follows
        if leave == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        else:
            client.shutdown(socket.SHUT_WR)
        await readers(served, 0)
