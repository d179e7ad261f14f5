"""A quarantine that isn't there is not asked for again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.amqp.connect import Connection, connect
from agent.amqp.data.splice import Counts
from agent.amqp.passive_declares import probe
from agent.core.addresses.uri import parse
from agent.links.ends import End
from agent.runtime.quarantine_looks import QuarantineLooks
from agent.status.board import Board, InQuarantine
from tests.integration.federation.sites import Site
from tests.integration.quarantine.scene import QUARANTINE
from tests.lab.user_program import publish_async


@dataclass
class Link:
    source: End
    counts: Counts = field(default_factory=Counts)


@pytest.fixture
async def connecting(there: Site) -> AsyncIterator[Callable[[], Any]]:
    opened: list[Connection] = []

    async def open_one() -> Connection:
        opened.append(await connect(parse(there.uri), where="upstream origin", name="test"))
        return opened[-1]

    yield open_one
    for each in opened:
        await each.close()


async def test_where_nothing_is_it_asks_again_only_for_a_reason(
    there: Site, connecting: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Connection] = []

    async def counted(connection: Connection, **named: Any) -> Any:
        asked.append(connection)
        return await probe(connection, **named)

    monkeypatch.setattr("agent.runtime.quarantine_looks.probe", counted)
    end, board = End("upstream origin", (parse(there.uri),)), Board(lambda: 0.0, "a")
    links, open_ones = [Link(end) for _ in range(30)], {end: await connecting()}
    looks = QuarantineLooks(lambda: links, open_ones.get, board)

    for _ in range(3):
        await looks.look()
    assert (len(asked), board.in_quarantine) == (1, InQuarantine(0, is_exact=True))
    there.node.admin.queue(there.vhost, QUARANTINE)
    await publish_async(there.uri, "", QUARANTINE, ["a", "b"])
    await looks.look()
    assert len(asked) == 1, "it is no reason that somebody else declares it"
    links[7].counts.quarantined["too_large"] = 2
    for _ in range(3):
        await looks.look()
    assert (len(asked), board.in_quarantine) == (4, InQuarantine(2, is_exact=True))

    there.node.admin.delete("queues", there.vhost, QUARANTINE)
    for _ in range(3):
        await looks.look()
    assert (len(asked), board.in_quarantine) == (5, InQuarantine(0, is_exact=True))
    open_ones[end] = await connecting()
    for _ in range(3):
        await looks.look()
    assert len(asked) == 6, "once after each reconnect: another agent may have been here"
    links.append(Link(End("upstream away", ())))
    await looks.look()
    assert (len(asked), board.in_quarantine) == (6, InQuarantine(0, is_exact=False))
