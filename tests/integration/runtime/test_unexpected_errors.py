"""A task of a running agent dies of an error that nobody foresaw, and does its work again; on real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml

from agent.amqp.broker_events import BINDING_EVENTS, BrokerEvent
from agent.core.links.lifecycle import Status
from agent.definitions.sources.load import load_configuration
from agent.downstream.listen import Listener
from agent.downstream.watch import ReloadCause
from agent.runtime.supervisor import Supervisor
from agent.status.board import Board
from agent.status.metrics import exposition
from agent.status.views import overview
from tests.integration.federation.conftest import SiteOn, site_on
from tests.integration.federation.sites import Site, federated
from tests.lab.node import Node
from tests.lab.waiting import eventually
from tests.unit.status.test_board import Clock

__all__ = ["site_on"]

TASK: Final = "follow bindings"


class Stumbling(Listener):
    """Fails in a way that nobody foresaw when bindings are listened to for the first time."""

    has_failed = False

    @asynccontextmanager
    async def events(self, keys: Sequence[str]) -> AsyncIterator[AsyncIterator[BrokerEvent] | None]:
        if keys == BINDING_EVENTS and not self.has_failed:
            self.has_failed = True
            raise ValueError("nobody foresaw this")
        async with super().events(keys) as events:
            yield events


async def test_bindings_are_followed_again_after_an_unforeseen_error(
    broker: Node, second_broker: Node, site_on: SiteOn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No watcher polls here, so whoever follows bindings is the only one who sees the new one."""
    here, there = site_on(broker), site_on(second_broker)
    here.exchange().queue("first")
    path = tmp_path / "agent.yaml"
    downstream = {"uri": broker.uri(), "management": broker.management_uri()}
    path.write_text(yaml.safe_dump({"downstream": downstream, "vhosts": {here.vhost: federated(there)}}))
    board = Board(Clock(), "dc2-a")
    supervisor = Supervisor(lambda: load_configuration(str(path), environment={}), board)
    supervisor.listener = Stumbling(lambda: supervisor.configuration.settings.downstream.uris, board.errors)
    try:
        await supervisor.reload(frozenset({ReloadCause.START}))
        await asyncio.to_thread(bind_another, here, there, board)
    finally:
        await supervisor.stop()
    assert supervisor.listener.has_failed
    [problem] = overview(board)["problems"]
    assert TASK in problem
    assert overview(board)["reload_success"]
    metrics = b"".join(await exposition(board)).decode()
    assert f'federation_agent_unexpected_errors_total{{task="{TASK}"}} 1\n' in metrics
    assert 'federation_agent_unexpected_errors_total{task="look for the federation plugin"} 0\n' in metrics
    assert "nobody foresaw this" in capsys.readouterr().out


def bind_another(here: Site, there: Site, board: Board) -> None:
    eventually(lambda: [entry.state.status for entry in board] == [Status.RUNNING], what="the link runs")
    there.wait_bound("first")
    here.bind("second")
    there.wait_bound("first", "second")
