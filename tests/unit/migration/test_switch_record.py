"""What a switchover notes, and what it reads again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from agent.core.addresses import uri
from agent.core.migration.objects import queue_key
from agent.errors import PermanentError
from agent.management.changing import DeclaringClient
from agent.migration.switch_record import MOST, SwitchedQueue, SwitchRecord
from tests.unit.migration.http_api import served

QUEUE = SwitchedQueue(queue_key("v", "q"), 5, 3, 3, 3, 5, 2)
NOTED: dict[str, Any] = {
    "vhost": "v",
    "queue": "q",
    "old": 5,
    "there": 3,
    "moved": 3,
    "kept": 3,
    "left": 5,
    "taking": 2,
    "keeps": False,
}


class Noting:
    """A broker that keeps one global parameter."""

    def __init__(self, value: Any = None) -> None:
        self.value: Any = value

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "PUT":
            self.value = (await request.json())["value"]
            return web.Response(status=204)
        return web.json_response({"name": "p", "value": self.value})

    async def read(self, *noted: SwitchedQueue) -> SwitchRecord:
        """After these were noted, if any were."""
        async with (
            served(self.answer) as port,
            DeclaringClient([uri.parse_http(f"http://guest:guest@127.0.0.1:{port}")]) as client,
        ):
            if noted:
                await SwitchRecord(client, list(noted)).note()
            found = SwitchRecord(client)
            await found.read()
            return found


def test_queues_without_counts_are_not_noted() -> None:
    found = asyncio.run(Noting().read(QUEUE, SwitchedQueue(queue_key("v", "idle"), 0, kept=0)))
    assert (found.queues, found.is_lost) == ([QUEUE], False)


def test_what_was_read_before_anything_is_counted() -> None:
    found = asyncio.run(Noting({}).read())
    assert (found.queues, found.is_lost) == (None, False)


@pytest.mark.parametrize("change", [{"old": "5"}, {"left": -1}, {"kept": []}, {"queue": 1}, {"keeps": None}])
def test_what_no_switchover_has_noted_is_lost(change: dict[str, Any]) -> None:
    assert asyncio.run(Noting({"queues": [NOTED]}).read()).queues == [QUEUE]
    for bad in (NOTED | change, {}, 7, None):
        found = asyncio.run(Noting({"queues": [NOTED, bad]}).read())
        assert (found.queues, found.is_lost) == (None, True)


def test_more_than_can_be_read_again_is_refused() -> None:
    one = len(json.dumps(NOTED))
    broker = Noting("before")

    async def begin(number: int) -> None:
        async with (
            served(broker.answer) as port,
            DeclaringClient([uri.parse_http(f"http://guest:guest@127.0.0.1:{port}")]) as client,
        ):
            await SwitchRecord(client).begin(QUEUE for _ in range(number))

    with pytest.raises(PermanentError, match="let consumers empty some"):
        asyncio.run(begin(MOST // one + 1))
    assert broker.value == "before"
    asyncio.run(begin(MOST // one - MOST // one // 20))
    assert broker.value == {}
