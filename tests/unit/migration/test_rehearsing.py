"""Only scratch vhosts are ever deleted, and only those that no rehearsal can be using."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web

from agent.core.addresses.uri import parse_http
from agent.core.migration.objects import Body, ObjectKey, queue_key, vhost_key
from agent.errors import PermanentError, TransientError
from agent.management.changing import DeclaringClient
from agent.migration.rehearsing import old_ones, rehearse
from tests.unit.migration.http_api import served

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_old_scratch_vhosts() -> None:
    old = "federation-agent: rehearsal 2026-01-02T10:59:59Z 0123abcd"
    others = [
        "federation-agent: rehearsal 2026-01-02T11:30:00Z 0123abcd",
        "federation-agent: rehearsal 2027-01-02T11:30:00Z 0123abcd",
        "federation-agent: rehearsal yesterday",
        "federation-agent: rehearsal 2020-01-01T00:00:00Z of production, keep",
        "federation-agent: rehearsal 2020-13-01T00:00:00Z 0123abcd",
        "2026-01-02T10:59:59Z 0123abcd",
        "/",
    ]
    assert old_ones([*others, old], NOW) == [old]


async def test_no_other_vhost_is_deleted() -> None:
    async with DeclaringClient([parse_http("http://localhost:1")]) as client:
        with pytest.raises(ValueError, match="only scratch vhosts"):
            await client.delete_scratch("/")


class Target:
    """An HTTP API in memory that makes and deletes vhosts, and keeps what it was asked."""

    def __init__(self, **statuses: int) -> None:
        self.statuses = statuses
        """By the beginning of what is asked for."""
        self.asked: list[str] = []
        self.hour = 10

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/api/")
        headers = {"Date": f"Fri, 02 Jan 2026 {self.hour}:00:00 GMT"}
        self.hour += 1
        if request.method == "GET":
            return web.json_response([], headers=headers)
        what = f"{request.method} {path}"
        self.asked.append(what)
        name = f"{request.method.lower()}_{path.partition('/')[0]}"
        status = self.statuses.pop(name, 0) if name == "delete_vhosts" else self.statuses.get(name, 0)
        if status:
            reason = "User not administrator" if status == 401 else "so it is"
            return web.json_response({"error": "x", "reason": reason}, status=status, headers=headers)
        return web.Response(status=204 if request.method == "DELETE" else 201, headers=headers)

    def made(self) -> list[str]:
        return [each.removeprefix("PUT vhosts/") for each in self.asked if each.startswith("PUT vhosts/")]


WANTED: dict[ObjectKey, Body] = {vhost_key("v"): {}, queue_key("v", "q"): {}}


@asynccontextmanager
async def serving(api: Target) -> AsyncIterator[DeclaringClient]:
    async with served(api.answer) as port, DeclaringClient([parse_http(f"http://u:p@127.0.0.1:{port}")]) as client:
        yield client


async def test_each_scratch_vhost_has_the_time_at_which_it_was_made_by_the_targets_clock() -> None:
    api = Target()
    async with serving(api) as client:
        assert await rehearse(client, {vhost_key(name): {} for name in "abc"}) == {}
    hours = [each.removeprefix("federation-agent: rehearsal 2026-01-02T")[:2] for each in api.made()]
    assert hours == ["10", "12", "14"]
    assert [each for each in api.asked if each.startswith("DELETE")] == [f"DELETE vhosts/{each}" for each in api.made()]


async def test_a_scratch_vhost_that_was_refused_isnt_removed() -> None:
    api = Target(put_vhosts=401)
    async with serving(api) as client:
        with pytest.raises(PermanentError, match="the tag administrator") as error:
            await rehearse(client, WANTED)
    assert "left at the target" not in str(error.value)
    assert len(api.asked) == 1


async def test_an_error_is_no_refusal() -> None:
    async with serving(Target(put_queues=400)) as client:
        assert await rehearse(client, WANTED) == {queue_key("v", "q"): "so it is"}
    api = Target(put_queues=500)
    async with serving(api) as client:
        with pytest.raises(TransientError, match="so it is"):
            await rehearse(client, WANTED)
    assert api.asked[-1].startswith("DELETE")


async def test_a_removal_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.migration.rehearsing._BETWEEN", 0.0)
    api = Target(delete_vhosts=500)
    async with serving(api) as client:
        await rehearse(client, WANTED)
    assert [each.partition(" ")[0] for each in api.asked] == ["PUT", "PUT", "DELETE", "DELETE"]
