"""A copy that goes on: through errors of either side, and without asking again for what was refused; and one that is
tried in a scratch vhost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from agent.cli.migration_text import is_complete
from agent.core.addresses.uri import parse_http
from agent.core.migration.difference import MigrationAction, MigrationVerb
from agent.core.migration.objects import Body, ObjectKey, ObjectKind, queue_key, vhost_key
from agent.core.migration.selection import everything
from agent.errors import AgentError, BrokerError, ConfigurationError, PermanentError, Place, TransientError
from agent.management.changing import DeclaringClient
from agent.management.client import ManagementClient
from agent.migration.copying import (
    AT_A_TIME,
    BETWEEN,
    LONGEST_WAIT,
    LOOK_EVERY,
    LOOKS,
    MOST_FAILURES,
    REFUSED_AGAIN,
    CopyAccount,
    CopyRound,
    Follower,
    copy,
    copy_once,
    half_made,
    old_ones,
    rehearse,
)
from agent.migration.reading import ClusterPair
from tests.unit.migration.http_api import served

WHO: dict[str, object] = {"name": "u", "tags": ["policymaker"]}
SELECTION = {"v": everything(Place("m.yaml"))}


@dataclass(slots=True)
class Api:
    """An HTTP API with a vhost `v`, in memory: what is put is there, but for what is refused."""

    queues: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    is_down: bool = False
    failing: set[str] = field(default_factory=set)
    has_vhost: bool = True
    depths: dict[str, int] = field(default_factory=dict)
    kind: str = "classic"
    shows_depths: bool = True

    def _queue(self, name: str) -> dict[str, Any]:
        depth = {"messages": self.depths[name]} if name in self.depths else {}
        return {"name": name, "durable": True, "arguments": {}, "type": self.kind, **depth}

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/api/")
        if self.is_down or (not self.shows_depths and request.query_string == "columns=name,messages"):
            return web.json_response({"error": "down"}, status=500)
        if request.method == "PUT":
            return self._put(path)
        kind, _, _ = path.partition("/")
        answers: dict[str, Any] = {
            "overview": {"cluster_name": "c", "rabbitmq_version": "4.3.6", "exchange_types": [{"name": "direct"}]},
            "vhosts": [{"name": "v"}] if self.has_vhost else [],
            "queues": [self._queue(each) for each in self.queues],
            "whoami": WHO,
        }
        return web.json_response(answers.get(kind, []))

    def _put(self, path: str) -> web.Response:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if not self.has_vhost:
            return web.json_response({"error": "x", "reason": "User not administrator"}, status=401)
        if name in self.failing:
            return web.json_response({"error": "x", "reason": "boom"}, status=500)
        if name in self.refused:
            return web.json_response({"error": "bad_request", "reason": "no"}, status=400)
        self.queues.append(name)
        return web.Response(status=201)


class StopError(Exception):
    """The test has seen enough."""


async def follow(source: Api, target: Api, steps: list[Callable[[], None]]) -> tuple[list[Any], list[float]]:
    """Rounds of a copy; each step happens while it waits for the next one. What was reported, and the waits."""
    reported: list[CopyRound | AgentError] = []
    waits: list[float] = []
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        waits.append(seconds)
        if not steps:
            raise StopError
        steps.pop(0)()

    async with served(source.answer) as here, served(target.answer) as there:
        urls = [[parse_http(f"http://u:p@127.0.0.1:{port}")] for port in (here, there)]
        async with ManagementClient(urls[0], where="source") as reading, DeclaringClient(urls[1]) as declaring:
            follower = Follower(
                ClusterPair(reading, declaring), SELECTION, reported.append, sleep, lambda: now, lambda: 0.99
            )
            with suppress(StopError):
                await follower.run()
    return reported, waits


def copied(reported: list[Any]) -> list[int | None]:
    """The number of objects of each round, None for an error."""
    return [None if isinstance(each, BrokerError) else each.account.done.total() for each in reported]


async def test_what_comes_is_copied_and_what_goes_stays() -> None:
    source, target = Api(["a"]), Api(["b"])

    def change() -> None:
        source.queues[:] = ["c"]

    reported, waits = await follow(source, target, [change, lambda: None])
    assert copied(reported) == [1, 1, 0]
    assert target.queues == ["b", "a", "c"]
    assert waits == [BETWEEN] * 3


async def test_errors_of_either_side_are_gone_through() -> None:
    source, target = Api(["a"]), Api()
    source.is_down = True

    def change() -> None:
        source.is_down, target.is_down = False, True

    def end() -> None:
        target.is_down = False

    reported, waits = await follow(source, target, [lambda: None] * 20 + [change, lambda: None, end, lambda: None])
    assert copied(reported) == [None] * 23 + [1, 0]
    assert all(waits[at] <= waits[at + 1] for at in range(20))
    assert max(waits) <= LONGEST_WAIT
    assert waits[-2:] == [BETWEEN, BETWEEN]
    assert "source" in str(reported[0])


async def test_what_is_refused_is_tried_rarely_and_the_rest_at_once() -> None:
    source, target = Api(["bad"]), Api(refused={"bad"})
    rounds = int(REFUSED_AGAIN / BETWEEN)
    steps: list[Callable[[], None]] = [lambda: source.queues.append("good"), *[lambda: None] * rounds]
    reported, _ = await follow(source, target, steps)
    assert target.asked == ["bad", "good", "bad"]
    assert [len(each.account.left) for each in reported] == [1] * (rounds + 2)
    assert not any(is_complete(each.plan, each.account) for each in reported)


async def test_a_vhost_that_is_refused_costs_one_request_and_nothing_is_said_to_be_complete() -> None:
    source, target = Api([f"q{number}" for number in range(200)]), Api(has_vhost=False)
    reported, _ = await follow(source, target, [lambda: None] * 3)
    assert target.asked == ["v"]
    assert [len(each.account.left) for each in reported] == [201] * 4


async def test_a_wrong_file_ends_it_and_a_vhost_that_goes_later_doesnt() -> None:
    source, target = Api(), Api()

    def lose() -> None:
        source.has_vhost = False

    reported, _ = await follow(source, target, [lose, lambda: None])
    assert [isinstance(each, AgentError) for each in reported] == [False, True, True]
    with pytest.raises(ConfigurationError, match="no vhost 'v'"):
        await follow(source, target, [])


def queues(*names: str) -> list[MigrationAction]:
    body = {"durable": True, "auto_delete": False, "arguments": {}}
    return [MigrationAction(MigrationVerb.CREATE, queue_key("v", name), body) for name in names]


async def copied_to(api: Api, actions: list[MigrationAction]) -> CopyAccount:
    async with served(api.answer) as port, DeclaringClient([parse_http(f"http://u:p@127.0.0.1:{port}")]) as target:
        return await copy(target, actions, {})


async def test_errors_over_some_keep_no_others_back() -> None:
    names = [f"q{number:03}" for number in range(100)]
    account = await copied_to(Api(failing=set(names[:5])), queues(*names))
    assert (account.done.total(), len(account.left)) == (95, 5)
    assert account.refused == set()


async def test_a_target_that_fails_again_and_again_is_left_alone_with_an_account() -> None:
    names = [f"q{number:03}" for number in range(100)]
    api = Api(failing=set(names))
    account = await copied_to(api, queues(*names))
    assert len(api.asked) < MOST_FAILURES + AT_A_TIME
    assert len(account.left) == 100
    assert "boom" in account.left[queue_key("v", "q099")]


@pytest.mark.parametrize(
    ("shown", "shown_later", "found", "looks"),
    [
        ({"a": 0, "b": 3, "other": 0}, {}, set(), 1),
        ({"a": 0}, {"b": 0}, set(), 2),
        ({"a": 0}, {}, {"b"}, LOOKS),
        ({"other": 0}, {}, {"a", "b"}, LOOKS),
        ({}, {}, set(), LOOKS),  # the broker shows none at all
    ],
)
async def test_quorum_queues_of_which_no_messages_are_shown_are_half_made(
    *, shown: dict[str, int], shown_later: dict[str, int], found: set[str], looks: int
) -> None:
    api, slept = Api(["a", "b", "other"], depths=dict(shown)), []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if seconds:
            api.depths |= shown_later

    async with served(api.answer) as port, DeclaringClient([parse_http(f"http://u:p@127.0.0.1:{port}")]) as target:
        half = await half_made(target, {queue_key("v", "a"), queue_key("v", "b")}, sleep)
    assert half == {queue_key("v", name) for name in found}
    assert slept == [0, *[LOOK_EVERY] * (looks - 1)]


async def test_an_account_is_given_though_the_target_fails_afterwards() -> None:
    source, target = Api(["a", "b"], kind="quorum"), Api(["a"], kind="quorum", shows_depths=False)
    async with served(source.answer) as here, served(target.answer) as there:
        urls = [[parse_http(f"http://u:p@127.0.0.1:{port}")] for port in (here, there)]
        async with ManagementClient(urls[0], where="source") as reading, DeclaringClient(urls[1]) as declaring:
            found = await copy_once(ClusterPair(reading, declaring), SELECTION)
    assert (dict(found.account.done), found.account.left) == ({ObjectKind.QUEUE: 1}, {})


async def test_a_refusal_is_one_with_several_addresses_too() -> None:
    async with served(Api(refused={"q"}).answer) as port:
        urls = [parse_http(f"http://u:p@127.0.0.1:{each}") for each in (port, 1)]
        async with DeclaringClient(urls) as target:
            account = await copy(target, queues("q"), {})
    assert account.left == {queue_key("v", "q"): "no"}
    assert account.failed is None


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
        self.who = WHO

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/api/")
        headers = {"Date": f"Fri, 02 Jan 2026 {self.hour}:00:00 GMT"}
        self.hour += 1
        if request.method == "GET":
            return web.json_response(self.who if path == "whoami" else [], headers=headers)
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
    assert hours == ["10", "13", "16"]
    assert [each for each in api.asked if each.startswith("DELETE")] == [f"DELETE vhosts/{each}" for each in api.made()]


async def test_a_scratch_vhost_that_was_refused_isnt_removed() -> None:
    api = Target(put_vhosts=401)
    async with serving(api) as client:
        with pytest.raises(PermanentError, match="the tag administrator") as error:
            await rehearse(client, WANTED)
    assert "left at the target" not in str(error.value)
    assert len(api.asked) == 1


async def test_a_scratch_vhost_is_made_whole_and_removed_though_that_is_refused() -> None:
    """As a vhost without permissions: the answer to the request that made it was lost, and it was asked for again."""
    for refused in (False, True):
        api = Target(put_permissions=400 if refused else 0)
        api.who = {"name": "u", "tags": ["administrator"]}
        async with serving(api) as client:
            if refused:
                with pytest.raises(PermanentError, match="so it is"):
                    await rehearse(client, WANTED)
            else:
                assert await rehearse(client, WANTED) == {}
        [scratch] = api.made()
        assert api.asked[1] == f"PUT permissions/{scratch}/u"
        assert api.asked[-1] == f"DELETE vhosts/{scratch}"


async def test_an_error_is_no_refusal() -> None:
    async with serving(Target(put_queues=400)) as client:
        assert await rehearse(client, WANTED) == {queue_key("v", "q"): "so it is"}
    api = Target(put_queues=500)
    async with serving(api) as client:
        with pytest.raises(TransientError, match="so it is"):
            await rehearse(client, WANTED)
    assert api.asked[-1].startswith("DELETE")


async def test_a_removal_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.migration.copying._REMOVED_EVERY", 0.0)
    api = Target(delete_vhosts=500)
    async with serving(api) as client:
        await rehearse(client, WANTED)
    assert [each.partition(" ")[0] for each in api.asked] == ["PUT", "PUT", "DELETE", "DELETE"]
