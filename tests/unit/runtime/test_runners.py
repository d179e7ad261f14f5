"""The links that run and those that end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

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
