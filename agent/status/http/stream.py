"""`/api/events`: the board as server-sent events, at the pace of their reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final

from aiohttp import web

from agent.slices import in_slices
from agent.status.board import Board
from agent.status.changes import Feed
from agent.status.entry import BoardEntry
from agent.status.http.connections import ResponseLimit
from agent.status.http.responses import compact
from agent.status.views import link_view, sample_view

View = Callable[[Board, BoardEntry], Mapping[str, Any]]
HEARTBEAT: Final = 15.0
GATHER: Final = 0.1  # changes within this time are sent together
MOST_READERS: Final = 64
TRY_AGAIN: Final = b"retry: 2000\n\n"
STILL_HERE: Final = b": still here\n\n"
HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def stream_events(request: web.Request, board: Board, limit: ResponseLimit) -> web.StreamResponse:
    """Runs until the agent stops or the connection ends, also because the reader disconnects or reads too slowly."""
    most = min(MOST_READERS, limit.most_connections // 2)
    if board.readers >= most:
        raise web.HTTPServiceUnavailable(text=f"{most} readers have events already; close some first")
    response = web.StreamResponse(headers=HEADERS)
    with board.feed() as feed:
        async with limit.slot():
            links = _event("links", await _list(board, board, link_view))
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        try:
            async for text in _events(board, feed, links):
                await response.write(text)
        except ConnectionError:
            pass  # the reader has disconnected
    return response


async def _events(board: Board, feed: Feed, links: bytes) -> AsyncIterator[bytes]:
    yield TRY_AGAIN
    yield links
    while not feed.ended:
        try:
            async with asyncio.timeout(HEARTBEAT):
                await feed.wait()
        except TimeoutError:
            yield STILL_HERE
            continue
        await asyncio.sleep(GATHER)
        changes = feed.take()
        for link_id in changes.gone:
            yield _event("gone", compact({"id": link_id}))
        async for link_id in in_slices(changes.changed):
            if link_id in board:
                yield _event("link", compact(link_view(board, board[link_id])))
        moved = [board[link_id] for link_id in changes.moved if link_id in board]
        if moved:
            yield _event("samples", await _list(board, moved, sample_view))


async def _list(board: Board, entries: Iterable[BoardEntry], view: View) -> str:
    """The list of links in JSON, only of those that still exist when their turn comes."""
    shown = [compact(view(board, entry)) async for entry in in_slices(entries) if entry.link.id in board]
    return f"[{','.join(shown)}]"


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode("ascii")
