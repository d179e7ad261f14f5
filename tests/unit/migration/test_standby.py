"""What is known of a standby before its source was read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from agent.migration.standby import keep_in_step
from agent.status.board import Board
from tests.unit.definitions.documents import load
from tests.unit.migration.http_api import served
from tests.unit.status.test_board import Clock

TEXT = """
downstream: {uri: amqp://here, management: 'http://guest:guest@127.0.0.1:%(port)d'}
upstreams: {origin: {uri: amqp://there, management: 'http://guest:guest@127.0.0.1:%(port)d'}}
standby: {of: origin, vhosts: {shop: }}
"""
ANSWERS = {
    "overview": {"cluster_name": "c", "rabbitmq_version": "4.3.6"},
    "nodes": [{"name": "a", "running": True, "uptime": 1_000}],
}
ROUNDS = 20


async def test_no_queue_was_looked_at_before_it_is_known_which_are_followed(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        found = ANSWERS.get(request.match_info["path"])
        return web.json_response(found, status=500 if found is None else 200)

    rounds, over = 0, asyncio.Event()

    async def sleep(_: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds >= ROUNDS and board.standby is not None and board.standby.follow_error:
            over.set()
        await asyncio.sleep(0.05)

    board = Board(Clock(), "a")
    async with served(answer) as port:
        configuration = load(tmp_path, TEXT % {"port": port})
        keeping = asyncio.create_task(keep_in_step(lambda: configuration, board, sleep))
        async with asyncio.timeout(30):
            await over.wait()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    assert board.standby is not None
    assert board.standby.depths_at is None
