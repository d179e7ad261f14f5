"""Messages on their way to a quarantine, between a link in virtual sockets and a broker that can't be reached, or takes
no quorum queues."""

from __future__ import annotations

from functools import partial

import pytest

from agent.amqp.connect import Connection
from agent.amqp.data.quarantined import Captured
from agent.amqp.data.rewriting import Delivery, Destination
from agent.amqp.failures import lost
from agent.amqp.wire import frames, methods
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.methods import Call
from agent.core import fields
from agent.core.addresses.uri import parse
from agent.core.rules import declarations
from agent.core.rules.quarantine import QUEUE, QuarantineReason
from agent.errors import TransientError
from agent.links.quarantine import MOST_WAITING, Lane, Quarantines
from agent.tasks import UnexpectedErrors
from tests.unit.amqp.wire.link import Link, Sent, Wire, feed, opened, pieces, terms, turn


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


CLOSED = methods.CONNECTION_CLOSE.encode(code=541, text="INTERNAL_ERROR - it has no such queues")
DISABLED = methods.CHANNEL_CLOSE.encode(code=406, text="PRECONDITION_FAILED - feature flag 'quorum_queue' is disabled")
MISSING = methods.CHANNEL_CLOSE.encode(code=404, text="NOT_FOUND - no queue")
REFUSED = methods.CHANNEL_CLOSE.encode(code=403, text="ACCESS_REFUSED - not now")


class Broker:
    """Answers declares of quorum queues by `to_quorum`, and refuses all others."""

    def __init__(self, to_quorum: bytes) -> None:
        self._to_quorum = to_quorum
        self._opened: list[tuple[WireConnection, Wire]] = []
        self.declared: list[object] = []
        """The types of quarantines."""

    async def connect(self) -> Connection:
        wire, socket = await opened()
        wire.explain = partial(lost, where="the source")
        self._opened.append((wire, socket))
        return Connection(parse("amqp://h"), wire, terms())

    async def answer(self) -> None:
        for wire, socket in self._opened:
            closed = set[int]()
            for _, number, payload in pieces(socket.taken()):
                said = self._said(methods.decode(payload))
                if said is None or number in closed:
                    continue
                closed |= {number} if said in {MISSING, REFUSED, DISABLED} else set()
                feed(wire, frames.frame(frames.METHOD, 0 if said is CLOSED else number, said))
            if socket.is_closed:
                wire.connection_lost(None)
        await turn()

    def _said(self, call: Call) -> bytes | None:
        match call.method:
            case methods.CONNECTION_CLOSE:
                return methods.CONNECTION_CLOSE_OK.encode()
            case methods.CHANNEL_OPEN:
                return methods.CHANNEL_OPEN_OK.encode()
            case methods.CHANNEL_CLOSE:
                return methods.CHANNEL_CLOSE_OK.encode()
            case methods.QUEUE_DECLARE if call["passive"]:
                return MISSING
            case methods.QUEUE_DECLARE:
                return self._declared(call)
        return None

    def _declared(self, call: Call) -> bytes:
        kind = fields.get(call["arguments"], declarations.TYPE)
        assert kind is not None
        if call["queue"] == QUEUE:
            self.declared.append(kind.value)
        return self._to_quorum if kind.value == "quorum" else REFUSED


@pytest.mark.parametrize("to_quorum", [CLOSED, DISABLED], ids=["connection", "channel"])
async def test_a_broker_without_quorum_queues_is_asked_for_a_classic_one(to_quorum: bytes) -> None:
    """Whether it closes the channel or the connection; where nothing shows of which type the source is."""
    broker, link = Broker(to_quorum), await Link.made()
    await link.deliver(Sent(1))
    lane = Lane("link", link.upstream.inbound, "q", is_quorum=None, destination=Destination(), opener=broker.connect)
    Quarantines(UnexpectedErrors()).capture("broker", link.target, lane).take(captured(1, 1))
    for _ in range(50):
        await broker.answer()
    assert broker.declared == ["quorum", "classic"]
    assert "not now" in link.target.trouble
