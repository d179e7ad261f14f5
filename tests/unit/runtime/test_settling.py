"""What follows when shovels finish."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent.core.links.lifecycle import Status
from agent.core.replicas.slots import lease_exchange
from agent.definitions.sources.load import load_configuration
from agent.downstream.watch import ReloadCause
from agent.runtime.supervisor import Supervisor
from agent.status.board import Board
from tests.simulation.broker.queues import Message, Queue
from tests.simulation.broker.sessions import Session
from tests.simulation.network import Stream
from tests.unit.model_brokers import HERE, Models, among_models

COUNT = 20
SETTLED_WITHIN = 5.0


def test_many_that_finish_together_cost_few_readings(tmp_path: Path) -> None:
    """And each is remembered once, as it ends: the agent may be gone in a moment."""
    path = tmp_path / "agent.yaml"
    uri = f"amqp://{HERE}"
    ends = f"src-uri: '{uri}', dest-uri: '{uri}', dest-queue: to, src-delete-after: 1"
    shovels = "".join(f"  s{number}: {{{ends}, src-queue: q{number}}}\n" for number in range(COUNT))
    path.write_text(f"downstream: {{uri: '{uri}', management: 'http://guest:guest@{HERE}:15672'}}\nshovels:\n{shovels}")

    async def live(models: Models) -> None:
        broker = models.broker()
        broker.make_queue(Queue("to", durable=True))
        for number in range(COUNT):
            broker.make_queue(Queue(f"q{number}", durable=True))
        happened: list[str] = []

        def written(_: Stream, data: bytes) -> None:
            happened.extend(["reading"] * data.count(b"GET /api/overview"))

        def published(_: Session | None, message: Message, __: list[str]) -> None:
            happened.extend(["remembered"] * (message.exchange == lease_exchange(HERE)))

        models.network.on_write, broker.on_published = written, published
        board = Board(lambda: 0.0, "a")
        supervisor = Supervisor(lambda: load_configuration(str(path), environment={}), board)
        await supervisor.reload(frozenset({ReloadCause.START}))
        await asyncio.sleep(SETTLED_WITHIN)
        assert [each.state.status for each in board] == [Status.RUNNING] * COUNT
        happened.clear()
        for number in range(COUNT):
            broker.publish("", f"q{number}", b"\0\0", b"m")
        await asyncio.sleep(SETTLED_WITHIN)
        assert [each.state.status for each in board] == [Status.TERMINATED] * COUNT
        assert happened[0] == "remembered"
        assert happened.count("remembered") == COUNT
        assert 1 <= happened.count("reading") <= COUNT / 3, "one that has begun isn't for those that end later"
        await supervisor.stop()

    among_models(live)
