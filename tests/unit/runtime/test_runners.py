"""The links that run and those that end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agent.core.links.lifecycle import Pause
from agent.core.replicas.sharing import Elsewhere, Verdict
from agent.downstream.known_bindings import KnownBindings
from agent.errors import BrokerError, PermanentError
from agent.links.brokers import Brokers
from agent.links.exchange.link import RunnableExchangeLink
from agent.links.registry import Kinds
from agent.runtime.replicas.replica import Replica
from agent.runtime.runners import Runners
from agent.status.board import Board
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.status.test_board import LINK


@pytest.mark.parametrize("error", [None, PermanentError("upstream origin: connection refused")])
def test_others_forget_a_removed_link_only_where_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, error: BrokerError | None
) -> None:
    """One of them may reach what this agent doesn't."""
    told: list[str] = []

    async def remove(*_: object, cluster: str, messages: bool, still: Callable[[], bool]) -> BrokerError | None:
        assert cluster == "here"
        assert messages
        assert still()
        return error

    monkeypatch.setattr(RunnableExchangeLink, "remove", remove)
    monkeypatch.setattr(Replica, "tell_removed", lambda _, link_id: told.append(link_id))

    async def live() -> None:
        runners = Runners(Board(lambda: 0.0, "dc2-a"), KnownBindings(), lambda: ())
        runner = runners.get_or_make(LINK, Kinds(Brokers((), "here", stall_after=30)))
        runner.unwant()
        await asyncio.wait_for(runner.finished.wait(), 1000)
        assert LINK.id not in runners.by_id

    in_virtual_time(live())
    assert told == ([] if error else [LINK.id])


PAUSE = Pause("ann", 1.0, "a new disk")


def test_what_may_not_have_been_heard_is_passed_on_to_the_agent_that_runs_the_link_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[object] = []

    def ask_others(_: Replica, link_id: str, action: str, pause: Pause | None) -> bool:
        told.append((action, pause))
        return link_id == LINK.id

    monkeypatch.setattr(Replica, "ask_others", ask_others)
    monkeypatch.setattr(Replica, "verdict", lambda *_: Elsewhere("agent b runs this link", "b"))

    async def live() -> None:
        runners = Runners(Board(lambda: 0.0, "dc2-a"), KnownBindings(), lambda: ())
        runners.get_or_make(LINK, Kinds(Brokers((), "here", stall_after=30)))
        runners.asked_in_vain(LINK.id, "restart", None)
        runners.start_ready()
        assert not told, "it connected again when its connection was lost"
        runners.asked_in_vain(LINK.id, "pause", PAUSE)
        for _ in range(2):
            runners.share()
        assert told == [("pause", PAUSE)]
        runners.asked_in_vain(LINK.id, "pause", PAUSE)
        runners.asked_by_another(LINK.id, "resume", None)
        runners.share()
        assert told == [("pause", PAUSE)], "somebody has taken it back"

    in_virtual_time(live())


@pytest.mark.parametrize(
    ("since", "asked"),
    [
        (lambda _: None, [("pause", PAUSE)]),
        (lambda runners: runners.act(LINK.id, "resume"), [("resume", None)]),
        (lambda runners: runners.asked_by_another(LINK.id, "resume", None), []),
    ],
)
def test_what_is_asked_before_others_are_known_is_passed_on_unless_it_was_taken_back(
    monkeypatch: pytest.MonkeyPatch, since: Callable[[Runners], None], asked: list[object]
) -> None:
    told: list[object] = []
    verdicts: list[Verdict] = [None]
    can_tell = [False]

    def ask_others(_: Replica, link_id: str, action: str, pause: Pause | None) -> bool:
        told.extend([(action, pause)] if can_tell[0] else [])
        return can_tell[0]

    monkeypatch.setattr(Replica, "ask_others", ask_others)
    monkeypatch.setattr(Replica, "verdict", lambda *_: verdicts[-1])

    async def live() -> None:
        runners = Runners(Board(lambda: 0.0, "dc2-a"), KnownBindings(), lambda: ())
        runners.get_or_make(LINK, Kinds(Brokers((), "here", stall_after=30)))
        runners.start_ready()
        runners.act(LINK.id, "pause", PAUSE)
        await asyncio.sleep(1)
        can_tell[0] = True
        since(runners)
        verdicts.append(Elsewhere("agent b runs this link", "b"))
        for _ in range(2):
            runners.start_ready()
            runners.share()
        assert told == asked

    in_virtual_time(live())
