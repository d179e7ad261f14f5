"""How long is waited for a broker, and at which addresses; without one."""

from __future__ import annotations

import asyncio
import base64
import errno
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from agent.amqp.connect import LONGEST_STEP, MOST_ADDRESSES, LastHeard, Wired, connect, first_to_answer, plain
from agent.amqp.wire.connection import WireConnection
from agent.amqp.wire.login import Terms
from agent.core.addresses.uri import AmqpUri, parse
from agent.errors import Failure, FailureKind, PermanentError, TransientError
from agent.tasks import GuardedTasks, UnexpectedErrors
from tests.lab.stranger import stranger
from tests.simulation.broker.broker import AMQP_PORT
from tests.simulation.network import Stream
from tests.unit.amqp.wire.link import Wire, terms
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
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


def other(uri: AmqpUri, terms: Terms) -> tuple[WireConnection, asyncio.BaseProtocol]:
    """A maker of another protocol's connections."""
    return plain(uri, terms)


@pytest.mark.parametrize(("maker", "is_sent"), [(plain, True), (other, False)])
def test_only_0_9_1_gives_a_broker_another_token(maker: Wired, is_sent: bool) -> None:
    """AMQP 1.0 has no method for it: the broker ends the connection with the token."""

    async def live(models: Models) -> None:
        models.broker(HERE)
        sent: list[bytes] = []
        token = ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in (b"{}", b'{"exp": 9}', b"0"))
        now = parse(f"amqp://user:{token}@{HERE}")
        tasks = GuardedTasks(UnexpectedErrors())
        async with await connect(parse(f"amqp://{HERE}"), where="x", name="test", wired=maker) as connection:
            models.network.on_write = lambda _, data: sent.append(data)
            connection.renew(now, tasks)
            await asyncio.sleep(1)
            assert connection.uri == now
            assert any(token.encode() in each for each in sent) is is_sent

    among_models(live)


def test_what_ends_a_login_for_good_is_told_as_it_is() -> None:
    """A server of another protocol, for example, as AMQP 1.0 finds out."""
    why = PermanentError("x: check the port", facts=Failure(FailureKind.INVALID))

    def refusing(uri: AmqpUri, terms: Terms) -> tuple[WireConnection, asyncio.BaseProtocol]:
        wire, protocol = plain(uri, terms)
        asyncio.get_running_loop().call_later(1, wire.abort, why)
        return wire, protocol

    async def live(models: Models) -> None:
        models.network.servers[HERE, AMQP_PORT] = Silent()
        with pytest.raises(PermanentError) as caught:
            await connect(parse(f"amqp://{HERE}"), where="x", name="test", wired=refusing)
        assert caught.value is why

    among_models(live)


def test_when_brokers_were_heard_is_remembered_of_some() -> None:
    async def live(models: Models) -> None:
        models.broker(HERE)
        heard = LastHeard()
        async with await connect(parse(f"amqp://{HERE}"), where="upstream origin", name="test") as connection:
            for port in range(MOST_ADDRESSES + 5):
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


NEVER = 1_000.0


class Addresses:
    """Each answers after so many seconds, or with an error."""

    def __init__(self, answers: Mapping[str, float | OSError]) -> None:
        self._answers = answers
        self.begun: list[tuple[str, float]] = []
        self.given_up: list[str] = []
        self.opened: dict[str, WireConnection] = {}

    async def __call__(self, address: str) -> WireConnection:
        self.begun.append((address, asyncio.get_running_loop().time()))
        answer = self._answers[address]
        if isinstance(answer, OSError):
            raise answer
        try:
            await asyncio.sleep(answer)
        except asyncio.CancelledError:
            self.given_up.append(address)
            raise
        wire = self.opened[address] = WireConnection(terms())
        wire.connection_made(Wire())
        return wire

    async def first(self, *, step: float, within: float) -> str:
        until = asyncio.get_running_loop().time() + within
        found = await first_to_answer(tuple(self._answers), self, step=step, until=until)
        return next(address for address, wire in self.opened.items() if wire is found)


@pytest.mark.parametrize("within", [60.0, 2.0])
def test_one_that_never_answers_keeps_no_other_waiting(within: float) -> None:
    """Also where there is little time in all, as leases have."""

    async def live() -> None:
        addresses = Addresses({"a": NEVER, "b": 0.1})
        assert await addresses.first(step=20.0, within=within) == "b"
        assert addresses.given_up == ["a"]
        assert asyncio.get_running_loop().time() <= min(20.0, within) / 2

    in_virtual_time(live())


def test_many_leave_each_enough_time() -> None:
    """Over a long line, a connection with TLS takes more than a tenth of the three seconds that a lease has."""

    async def live() -> None:
        silent = [f"silent {number}" for number in range(9)]
        addresses = Addresses({**dict.fromkeys(silent, NEVER), "last": 1.4})
        assert await addresses.first(step=20.0, within=3.0) == "last"
        assert [address for address, _ in addresses.begun] == [*silent, "last"], "the first ones are the best"
        assert sorted(addresses.given_up) == silent
        assert addresses.begun[-1][1] <= 1.5

    in_virtual_time(live())


def test_of_those_that_answer_together_one_is_used() -> None:
    async def live() -> None:
        addresses = Addresses({"a": 0.75, "b": 0.25})  # which begins after 0.5 s
        assert await addresses.first(step=2.0, within=2.0) in {"a", "b"}
        assert [wire.closed.done() for wire in addresses.opened.values()].count(False) == 1
        assert len(addresses.opened) == 2

    in_virtual_time(live())


def test_where_none_answers_each_is_named() -> None:
    async def live() -> None:
        with pytest.raises(OSError, match=r"^no answer of a within 20 s; refused; no answer of c within 20 s$"):
            await Addresses({"a": NEVER, "b": OSError("refused"), "c": NEVER}).first(step=20.0, within=60.0)
        with pytest.raises(TimeoutError, match=r"^no answer of a within 3 s$"):
            await Addresses({"a": NEVER}).first(step=20.0, within=3.0)
        refused = {each: OSError(errno.ECONNREFUSED, f"Connect call failed ({each!r}, 5672)") for each in "ab"}
        with pytest.raises(ConnectionRefusedError):
            await Addresses({**refused}).first(step=20.0, within=60.0)
        unreached = {"c": OSError(errno.EHOSTUNREACH, "Connect call failed ('c', 5672)")}
        with pytest.raises(OSError, match=r"^Connection refused; No route to host$"):
            await Addresses({**refused, **unreached}).first(step=20.0, within=60.0)

    in_virtual_time(live())


def test_one_that_refuses_is_followed_at_once() -> None:
    async def live() -> None:
        addresses = Addresses({"a": OSError("refused"), "b": 0.0})
        assert await addresses.first(step=20.0, within=60.0) == "b"
        assert asyncio.get_running_loop().time() == 0

    in_virtual_time(live())


def test_a_certificate_that_is_refused_is_refused_for_all() -> None:
    async def live() -> None:
        addresses = Addresses({"a": ssl.SSLError("self-signed"), "b": 0.0})
        with pytest.raises(ssl.SSLError):
            await addresses.first(step=20.0, within=60.0)
        assert [address for address, _ in addresses.begun] == ["a"]

    in_virtual_time(live())
