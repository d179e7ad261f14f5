"""What a move follows, and where it doesn't begin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from agent.definitions.sources.migration import load_migration
from agent.errors import BrokerError, PermanentError
from agent.migration.running import BETWEEN, MovingConfiguration, move_of, read_both, refuse_what_cant_begin
from tests.unit.migration.http_api import served

SELECTION: Final = "vhosts: {v: }"


@dataclass(slots=True)
class Side:
    """The HTTP API of a cluster with the vhost `v`."""

    cluster: str
    queues: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    consumers: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    user: str = "u"
    is_down: bool = False

    async def answer(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.json_response({"error": "down"}, status=500)
        queues = [{"name": name} for name in self.queues]
        whole = {"durable": True, "auto_delete": False, "arguments": {}, "type": "classic"}
        answers: dict[str, Any] = {
            "overview": {"cluster_name": self.cluster, "rabbitmq_version": "4.3.6"},
            "vhosts": [{"name": "v"}],
            "queues": [each if each["name"] in self.unread else {**each, **whole} for each in queues],
            "consumers": [{"queue": {"name": "q"}, "consumer_tag": tag} for tag in self.consumers],
            "whoami": {"name": self.user, "tags": self.tags},
        }
        return web.json_response(answers.get(request.path.split("/")[2], []))


class EndOfTestError(Exception):
    """The test has seen enough."""


@dataclass(slots=True)
class Both:
    path: Path
    source: Side = field(default_factory=lambda: Side("old", ["q"]))
    target: Side = field(default_factory=lambda: Side("new", ["q"]))
    said: list[str] = field(default_factory=list)

    async def serve(self, stack: AsyncExitStack) -> None:
        lines = []
        for key, side in (("source", self.source), ("target", self.target)):
            port = await stack.enter_async_context(served(side.answer))
            lines.append(f'{key}: {{uri: "amqp://u:s-1@{key}", management: "http://u:s-1@127.0.0.1:{port}"}}\n')
        self.path.write_text("".join(lines) + SELECTION)

    async def begin(self, *, back: bool = False) -> None:
        async with AsyncExitStack() as stack:
            await self.serve(stack)
            migration = load_migration(str(self.path), environment={})
            await refuse_what_cant_begin(move_of(migration, await read_both(migration), back=back))

    async def follow(self, *steps: Callable[[], object]) -> list[set[str]]:
        """The queues that move, at first and each time that something has changed; each step happens between looks."""
        waiting = list(steps)

        async def sleep(seconds: float) -> None:
            assert seconds == BETWEEN
            if not waiting:
                raise EndOfTestError
            waiting.pop(0)()

        async with AsyncExitStack() as stack:
            await self.serve(stack)
            read = await read_both(load_migration(str(self.path), environment={}))
            moving = MovingConfiguration(str(self.path), {}, read)
            found = [moved(moving)]
            with suppress(EndOfTestError):
                await moving.follow(
                    lambda: found.append(moved(moving)), lambda error: self.said.append(str(error)), sleep
                )
            self.said += [str(each) for each in moving.load().warnings]
        return found


def moved(moving: MovingConfiguration) -> set[str]:
    return {name.removeprefix("migrate ") for name in moving.load().definitions.of("v").shovels}


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path / "m.yaml")


async def test_what_is_copied_later_moves_and_what_goes_ends(both: Both) -> None:
    steps = [
        lambda: both.source.queues.append("later"),
        lambda: both.target.queues.append("later"),
        lambda: None,
        lambda: both.source.queues.remove("q"),
    ]
    assert await both.follow(*steps) == [{"q"}, {"q"}, {"q", "later"}, {"later"}]
    assert both.said == []


async def test_what_isnt_copied_yet_is_said(both: Both) -> None:
    assert await both.follow(lambda: both.source.queues.append("later")) == [{"q"}, {"q"}]
    assert "1 queue is missing (queue 'later' in vhost 'v') at the target; they move once" in both.said[0]


async def test_a_queue_whose_node_is_down_and_a_cluster_that_doesnt_answer_change_nothing(both: Both) -> None:
    steps = [
        lambda: both.source.unread.add("q"),
        lambda: setattr(both.target, "is_down", True),
        lambda: None,
        lambda: setattr(both.target, "is_down", False),
    ]
    assert await both.follow(*steps) == [{"q"}]
    assert len(both.said) == 1
    assert "target" in both.said[0]


async def test_what_cant_begin_says_what_to_do(both: Both) -> None:
    await both.begin()
    both.source.queues.append("new")
    with pytest.raises(
        PermanentError, match=r"^target: 1 queue is missing .*: run 'federation-agent migrate copy' first"
    ):
        await both.begin()
    await both.begin(back=True)
    both.target.cluster = "old"
    with pytest.raises(PermanentError, match="both named 'old'"):
        await both.begin()


async def test_messages_dont_go_round(both: Both) -> None:
    both.target.consumers = ["federation-agent: migrate to elsewhere", "mine"]
    await both.begin()
    both.target.consumers = ["federation-agent: migrate to old 2"]
    with pytest.raises(PermanentError, match="target: an agent moves queue 'q' in vhost 'v' back to source"):
        await both.begin()
    await both.begin(back=True)
    both.source.consumers = ["federation-agent: migrate to new"]
    with pytest.raises(PermanentError, match="source: an agent moves queue 'q' in vhost 'v' back to target"):
        await both.begin(back=True)


async def test_a_user_who_would_see_no_consumers_is_refused(both: Both) -> None:
    both.target.user = "another"
    with pytest.raises(PermanentError, match="doesn't see consumers of other users") as error:
        await both.begin()
    assert "s-1" not in str(error.value)
    both.target.tags = ["policymaker", "monitoring"]
    await both.begin()


async def test_a_cluster_that_doesnt_answer(both: Both) -> None:
    both.source.is_down = True
    with pytest.raises(BrokerError, match="source"):
        await both.begin()
