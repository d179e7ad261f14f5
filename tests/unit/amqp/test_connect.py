"""How long is waited for a broker, and at which addresses; without one."""

from __future__ import annotations

import asyncio
import socket

import pytest

from agent.amqp.connect import LONGEST_STEP, connect
from agent.core.addresses.uri import parse
from agent.errors import PermanentError, TransientError
from tests.lab.stranger import stranger
from tests.simulation.broker.broker import AMQP_PORT
from tests.simulation.network import Stream
from tests.unit.model_brokers import HERE, Models, among_models

LONGER = LONGEST_STEP + 10


class Silent:
    """A server that takes connections and whatever comes, and never says a word."""

    is_up = True

    def accept(self, _: Stream) -> Silent:
        return self

    def received(self, data: bytes) -> None: ...

    def lost(self) -> None: ...


@pytest.mark.parametrize(
    ("query", "within", "seconds"),
    [("", None, LONGEST_STEP), (f"?connection_timeout={LONGER * 1000:.0f}", None, LONGER), ("", 3.0, 3.0)],
)
def test_no_step_is_waited_for_too_long(query: str, within: float | None, seconds: float) -> None:
    """The handshake's bytes may be lost; where somebody says how long to wait, that counts."""

    async def live(models: Models) -> None:
        models.network.servers[HERE, AMQP_PORT] = Silent()
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TransientError, match=f"connected, but no AMQP within {seconds:g} s: the broker is frozen"):
            await connect(parse(f"amqp://{HERE}{query}"), where="upstream origin", name="test", within=within)
        assert loop.time() - began == pytest.approx(seconds, abs=0.1)

    among_models(live)


async def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:  # only at the second one
        found = [(0, 0, 0, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)  # no name has two on every machine
        with pytest.raises(PermanentError, match=r"two\.example:.* not AMQP: the response begins with b'HTTP"):
            await connect(parse(f"amqp://two.example:{port}"), where="upstream origin", name="test")
