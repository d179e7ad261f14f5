"""How long is waited for a broker, and at which addresses; without one."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta

import pytest

from agent.amqp.connect import LONGEST_STEP, connect
from agent.amqp.last_heard import MOST, LastHeard
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


@pytest.mark.parametrize("is_open", [True, False])
def test_a_server_that_answered_before_is_said_to_be_frozen(*, is_open: bool) -> None:
    """A connection that is still open counts too: a broker that is suspended ends none."""

    async def live(models: Models) -> None:
        models.broker(HERE)
        heard, uri = LastHeard(), parse(f"amqp://{HERE}")
        connection = await connect(uri, where="upstream origin", name="test", heard=heard)
        if not is_open:
            await connection.close()
        models.network.servers[HERE, AMQP_PORT] = Silent()
        at = datetime.now(UTC)
        with pytest.raises(TransientError) as caught:
            await connect(uri, where="upstream origin", name="test", within=3.0, heard=heard)
        # The loop's time passes by itself, and three of its seconds are none by the clock.
        times = [(at - timedelta(seconds=seconds)).strftime("%H:%M:%S") for seconds in range(5)]
        told = "it accepts connections and doesn't answer, it did until {}: frozen or overloaded?"
        assert str(caught.value) in [f"upstream origin {HERE}:{AMQP_PORT}: {told.format(each)}" for each in times]
        with pytest.raises(TransientError, match="connected, but no AMQP within 3 s"):
            await connect(uri, where="upstream origin", name="test", within=3.0, heard=LastHeard())

    among_models(live)


def test_a_port_that_answers_others_is_not_said_to_be_silent_since_then() -> None:
    """With a time in it, each attempt would fail for another reason."""

    async def live(models: Models) -> None:
        models.broker(HERE)
        heard, uri = LastHeard(), parse(f"amqp://{HERE}?heartbeat=1")
        async with await connect(uri, where="upstream origin", name="test", heard=heard):
            models.network.servers[HERE, AMQP_PORT] = Silent()
            with pytest.raises(TransientError, match="it accepts connections and doesn't answer new ones"):
                await connect(uri, where="upstream origin", name="test", within=5.0, heard=heard)

    among_models(live)


def test_when_brokers_were_heard_is_remembered_of_some() -> None:
    async def live(models: Models) -> None:
        models.broker(HERE)
        heard = LastHeard()
        async with await connect(parse(f"amqp://{HERE}"), where="upstream origin", name="test") as connection:
            for port in range(MOST + 5):
                heard.follow(connection.wire, (HERE, port))
                await connection.close()
                await asyncio.sleep(0)
        assert heard.time_of((HERE, 4)) is None
        assert heard.time_of((HERE, 5)) is not None
        await asyncio.sleep(86_400)
        assert len(heard.time_of((HERE, 5)) or "") == len("2026-01-01 00:00:00")

    among_models(live)


async def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:  # only at the second one
        found = [(0, 0, 0, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)  # no name has two on every machine
        with pytest.raises(PermanentError, match=r"two\.example:.* not AMQP: the response begins with b'HTTP"):
            await connect(parse(f"amqp://two.example:{port}"), where="upstream origin", name="test")
