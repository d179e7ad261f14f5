"""The links that run and those that end: what other agents of the group hear of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from agent.amqp.wire.ends import Permit
from agent.core.addresses.uri import parse
from agent.core.links.lifecycle import Pause
from agent.core.links.waits import CleanupAfter
from agent.core.model import ExchangeLink
from agent.downstream.bindings import KnownBindings
from agent.links.brokers import Brokers
from agent.links.registry import Kinds
from agent.runtime.replicas.replica import GroupLinks, Replica
from agent.runtime.runners import Runners
from agent.status.board import Board
from agent.tasks import GuardedTasks, UnexpectedErrors
from tests.simulation.broker.broker import AMQP_PORT, Broker
from tests.simulation.broker.sessions import Session
from tests.simulation.network import Stream
from tests.unit.core.some_links import exchange_link
from tests.unit.model_brokers import HERE, THERE, Models, among_models

LINK = replace(exchange_link(), uris=(parse(f"amqp://{THERE}"),))
ANOTHER_WAY = "127.0.0.4"
SETTLED_WITHIN = 15.0
PAUSE = Pause("ann", 1.0, "a new disk")


class Door:
    """Another way to a broker, which opens some time."""

    is_up = False

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def accept(self, stream: Stream) -> Session:
        return self._broker.accept(stream)


class AnotherAgent:
    """Of the same group: it knows the link, and notes what it hears."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Pause | None]] = []
        self.removed: list[str] = []
        self._tasks = tasks = GuardedTasks(UnexpectedErrors())
        uris = (parse(f"amqp://{HERE}"),)
        self._replica = replica = Replica(lambda: uris, tasks, Permit(), cast("GroupLinks", self))
        replica.join("group", "b")
        replica.follow((LINK,))
        tasks.keep("share links", replica.run)

    async def stop(self) -> None:
        await self._replica.hand_over()
        await self._tasks.end(1.0)

    def asked_by_another(self, link_id: str, action: str, pause: Pause | None) -> None:
        assert link_id == LINK.id
        self.asked.append((action, pause))

    @property
    def commands(self) -> AnotherAgent:
        return self

    def removed_by_another(self, link_id: str) -> None:
        self.removed.append(link_id)

    def slots_at_work(self) -> frozenset[int]:
        return frozenset()

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


def runners_of(link: ExchangeLink, *, at: str = HERE) -> Runners:
    """Of an agent that reaches its broker at this address."""
    board = Board(lambda: 0.0, "a")
    board.group = "group"
    made = Runners(board, KnownBindings(), lambda: (parse(f"amqp://{at}"),))
    made.get_or_make(link, Kinds(Brokers((), "here", stall_after=30, cleanup_after=CleanupAfter(1.0, 5.0))))
    made.share_with_others()
    return made


@pytest.mark.parametrize("is_reached", [True, False])
def test_others_forget_a_removed_link_only_where_nothing_is_left(*, is_reached: bool) -> None:
    """One of them may reach what this agent doesn't."""

    async def live(models: Models) -> None:
        models.broker(HERE)
        models.broker(THERE).is_up = is_reached
        runners = runners_of(LINK)
        await asyncio.sleep(SETTLED_WITHIN)
        other = AnotherAgent()
        await asyncio.sleep(SETTLED_WITHIN)
        runner = runners.by_id[LINK.id]
        runner.unwant()
        await asyncio.wait_for(runner.finished, 60)
        assert LINK.id not in runners.by_id
        await asyncio.sleep(1)
        assert other.removed == ([LINK.id] if is_reached else [])

    among_models(live)


def test_a_pause_goes_with_its_link() -> None:
    """One of the same name that is defined later isn't paused by somebody who meant another."""

    async def live(models: Models) -> None:
        models.broker(HERE)
        models.broker(THERE)
        runners = runners_of(LINK)
        await asyncio.sleep(SETTLED_WITHIN)
        runners.commands.act(LINK.id, "pause", PAUSE)
        await asyncio.sleep(1)
        runner = runners.by_id[LINK.id]
        assert runner.state.paused
        runner.unwant()
        await asyncio.wait_for(runner.finished, 60)
        await asyncio.sleep(1)
        again = runners.get_or_make(LINK, Kinds(Brokers((), "here", stall_after=30)))
        assert again is not runner
        runners.share()
        runners.start_ready()
        await asyncio.sleep(SETTLED_WITHIN)
        assert not again.state.paused

    among_models(live)


def test_what_may_not_have_been_heard_is_passed_on_to_the_agent_that_runs_the_link_then() -> None:
    async def live(models: Models) -> None:
        models.broker()
        other = AnotherAgent()
        await asyncio.sleep(SETTLED_WITHIN)
        runners = runners_of(LINK)
        runners.commands.asked_in_vain(LINK.id, "restart", None)
        await asyncio.sleep(SETTLED_WITHIN)
        assert runs_elsewhere(runners)
        assert other.asked == [], "it connected again when its connection was lost"
        runners.commands.asked_in_vain(LINK.id, "pause", PAUSE)
        for _ in range(2):
            runners.share()
        await asyncio.sleep(1)
        assert other.asked == [("pause", PAUSE)]
        runners.commands.asked_in_vain(LINK.id, "pause", PAUSE)
        runners.commands.asked_by_another(LINK.id, "resume", None)
        runners.share()
        await asyncio.sleep(1)
        assert other.asked == [("pause", PAUSE)], "somebody has taken it back"
        runners.commands.asked_in_vain(LINK.id, "pause", PAUSE)
        runners.commands.act(LINK.id, "resume")
        runners.share()
        await asyncio.sleep(1)
        assert other.asked == [("pause", PAUSE), ("resume", None)], "the operator has taken it back"

    among_models(live)


@pytest.mark.parametrize("is_deaf", [False, True])
def test_what_another_agent_has_passed_on_goes_with_the_link_unless_it_may_have_been_taken_back(
    *, is_deaf: bool
) -> None:
    async def live(models: Models) -> None:
        models.broker(HERE)
        models.broker(THERE)
        other = AnotherAgent()
        await asyncio.sleep(SETTLED_WITHIN)
        runners = runners_of(LINK)
        await asyncio.sleep(SETTLED_WITHIN)
        assert runs_elsewhere(runners)
        runners.commands.asked_by_another(LINK.id, "pause", PAUSE)
        if is_deaf:
            runners.commands.hear_nothing()
        await other.stop()
        await asyncio.sleep(SETTLED_WITHIN)
        assert not runs_elsewhere(runners)
        assert runners.by_id[LINK.id].state.paused is not is_deaf

    among_models(live)


@pytest.mark.parametrize(
    ("since", "asked"),
    [
        (lambda _: None, [("pause", PAUSE)]),
        (lambda runners: runners.commands.act(LINK.id, "resume"), [("resume", None)]),
        (lambda runners: runners.commands.asked_by_another(LINK.id, "resume", None), []),
    ],
)
def test_what_is_asked_before_others_are_known_is_passed_on_unless_it_was_taken_back(
    since: Callable[[Runners], None], asked: list[object]
) -> None:
    async def live(models: Models) -> None:
        door = models.network.servers[ANOTHER_WAY, AMQP_PORT] = Door(models.broker())
        other = AnotherAgent()
        await asyncio.sleep(SETTLED_WITHIN)
        runners = runners_of(LINK, at=ANOTHER_WAY)
        await asyncio.sleep(1)
        runners.commands.act(LINK.id, "pause", PAUSE)
        await asyncio.sleep(1)
        since(runners)
        assert other.asked == [], "nobody can be asked"
        door.is_up = True
        await asyncio.sleep(SETTLED_WITHIN)
        assert runs_elsewhere(runners)
        assert other.asked == asked

    among_models(live)


def runs_elsewhere(runners: Runners) -> bool:
    state = runners.by_id[LINK.id].state
    return state.standby is not None and "agent b" in state.standby
