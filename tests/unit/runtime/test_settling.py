"""What follows when shovels finish."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.core.links import lifecycle
from agent.core.model import Link
from agent.definitions.sources.load import load_configuration
from agent.downstream.watch import Cause
from agent.runtime.runners import Runners
from agent.runtime.supervisor import Supervisor
from agent.status.board import Board
from tests.unit.runtime.http_api import http_api

SHOVEL = "{src-uri: 'amqp://127.0.0.1:1', src-queue: q, dest-uri: 'amqp://127.0.0.1:1', dest-queue: q}"
COUNT = 30


async def test_many_that_finish_together_cost_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each is remembered once when it ends, not all those before it again."""
    remembered: list[str] = []
    again = asyncio.Event()
    readings = 0

    def note(_: Runners, links: Any) -> None:
        remembered.extend(link.id for link in links)
        if len(remembered) > COUNT:
            again.set()

    monkeypatch.setattr(Runners, "remember_finished", note)
    with http_api() as api:
        path = tmp_path / "agent.yaml"
        shovels = "".join(f"  s{number}: {SHOVEL}\n" for number in range(COUNT))
        path.write_text(f"downstream: {{uri: 'amqp://127.0.0.1:1', management: '{api.url}'}}\nshovels:\n{shovels}")

        def overview() -> Any:
            nonlocal readings
            readings += 1
            return {"cluster_name": "dc2", "rabbitmq_version": "4.0.5"}

        api.answers["overview"] = overview
        supervisor = Supervisor(lambda: load_configuration(str(path), environment={}), Board(lambda: 0.0, "dc2-a"))
        try:
            await supervisor.reload(frozenset({Cause.START}))
            before, links = readings, finish_all(supervisor)
            assert len(links) == COUNT
            assert sorted(remembered) == sorted(link.id for link in links)
            await asyncio.wait_for(again.wait(), 10)
            await asyncio.sleep(0.2)  # for another one
            assert readings == before + 1
            assert len(remembered) == 2 * COUNT
        finally:
            await supervisor.stop()


def finish_all(supervisor: Supervisor) -> list[Link]:
    found = []
    for runner in supervisor._runners:
        runner.send(lifecycle.Completed(earlier=True))
        supervisor._has_settled()
        found.append(runner.link)
    return found
