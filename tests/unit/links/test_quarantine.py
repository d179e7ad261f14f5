"""Messages on their way to a quarantine, between a link in virtual sockets and a broker that can't be reached."""

from __future__ import annotations

import pytest

from agent.amqp.connect import Connection
from agent.amqp.data.quarantined import Captured
from agent.amqp.data.rewriting import Delivery, Destination
from agent.core.rules.quarantine import QuarantineReason
from agent.errors import TransientError
from agent.links.quarantine import MOST_WAITING, Lane, Quarantines
from agent.tasks import UnexpectedErrors
from tests.unit.amqp.wire.link import Link, Sent, turn


class ClosedReader:
    """Its socket has been closed beneath it."""

    def hold(self, holder: object) -> None:
        raise RuntimeError(f"the handler is closed: {holder}")

    def release(self, holder: object) -> None:
        pass


def captured(tag: int, size: int) -> Captured:
    return Captured(tag, QuarantineReason.TOO_LARGE, Delivery(b"x", b"k", False), b"\0\0", bytes(size), size)


async def test_a_reader_that_can_not_be_held_leaves_no_message_behind() -> None:
    """What waits is carried, and so is what comes later."""
    asked: list[str] = []

    async def open_connection() -> Connection:
        asked.append("again")
        raise TransientError("unreachable")

    link = await Link.made()
    await link.deliver(Sent(1), Sent(2))
    lane = Lane("link", ClosedReader(), "q", is_quorum=False, destination=Destination(), opener=open_connection)
    capture = Quarantines(UnexpectedErrors()).capture("broker", link.target, lane)
    with pytest.raises(RuntimeError, match="is closed"):
        capture.take(captured(1, MOST_WAITING + 1))
    for _ in range(3):
        await turn()
    assert len(asked) == 1
    capture.take(captured(2, 1))
    for _ in range(3):
        await turn()
    assert len(asked) == 2
    assert "unreachable" in link.target.trouble
