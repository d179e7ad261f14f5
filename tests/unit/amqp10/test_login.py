"""A login and an opening: what the peer gets, and the error where it refuses, hangs up or is wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.failures import opening_failed
from agent.amqp.wire.login import Terms
from agent.amqp10 import performatives
from agent.amqp10.types import Value
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism
from agent.errors import BrokerError, FailureKind, PermanentError, TransientError
from tests.unit.amqp.wire.link import turn
from tests.unit.amqp.wire.virtual_loop import VirtualLoop, in_virtual_time
from tests.unit.amqp10.peer import PASSWORD, Peer, said

ALL = ("PLAIN", "EXTERNAL", "ANONYMOUS")


async def offered(*mechanisms: str, **wanted: Any) -> Peer:
    peer = Peer.made(**wanted)
    peer.feed(performatives.SASL_HEADER)
    peer.sasl(performatives.SASL_MECHANISMS, sasl_server_mechanisms=mechanisms)
    return peer


async def end_of(peer: Peer) -> BrokerError:
    """The error as an operator sees it."""
    await turn()
    terms = Terms("shovel end", "v", "u", Secret(PASSWORD), (), 0)
    with pytest.raises(BrokerError) as found:
        await peer.opening
    error = found.value
    assert error is peer.wire.closed.result()
    shown = opening_failed(error, terms, peer.wire.mechanism, None)
    assert str(shown).count("shovel end") == 1
    assert "\n" not in str(shown) and PASSWORD not in str(shown)
    return shown


@pytest.mark.parametrize(
    ("mechanisms", "is_anonymous", "mechanism", "response"),
    [
        ((Mechanism.PLAIN,), False, "PLAIN", f"\0u\0{PASSWORD}".encode()),
        ((Mechanism.EXTERNAL,), False, "EXTERNAL", b""),
        ((Mechanism.EXTERNAL, Mechanism.PLAIN), False, "EXTERNAL", b""),
        ((Mechanism.PLAIN,), True, "ANONYMOUS", b"federation-agent"),
    ],
)
async def test_logins(mechanisms: tuple[Mechanism, ...], is_anonymous: bool, mechanism: str, response: bytes) -> None:
    peer = await offered(*ALL, mechanisms=mechanisms, is_anonymous=is_anonymous)
    [init] = peer.heard()
    assert (init["mechanism"], init["initial_response"], init["hostname"]) == (mechanism, response, "vhost:v")
    peer.sasl(performatives.SASL_OUTCOME, code=0)
    [opened] = peer.heard()
    assert opened["hostname"] == "vhost:v"
    assert peer.headers == [performatives.SASL_HEADER, performatives.PROTOCOL_HEADER]
    peer.feed(performatives.PROTOCOL_HEADER)
    peer.say(performatives.OPEN, container_id="peer")
    await turn()
    await peer.opening
    assert peer.wire.account[0] == ("" if mechanism == "EXTERNAL" else "u")


async def test_a_user_without_a_name_has_a_password_where_nobody_is_anonymous() -> None:
    peer = await offered("PLAIN", is_anonymous=True)
    [init] = peer.heard()
    assert init["mechanism"] == "PLAIN"


@given(st.lists(st.integers(1, 20), max_size=300))
def test_a_login_in_pieces_of_any_size(cuts: list[int]) -> None:
    async def scenario() -> None:
        peer = Peer.made()
        mechanisms = performatives.SASL_MECHANISMS.encode(sasl_server_mechanisms=ALL)
        whole = [
            performatives.SASL_HEADER,
            performatives.frame(0, mechanisms, performatives.SASL),
            performatives.frame(0, performatives.SASL_OUTCOME.encode(code=0), performatives.SASL),
            performatives.PROTOCOL_HEADER,
            said(performatives.OPEN, container_id="peer", properties={"product": Value("string", "P")}),
        ]
        peer.feed(b"".join(whole), cuts or [1] * 1_000)
        await turn()
        await peer.opening
        assert peer.translator.limits.channel_max == 65_535

    asyncio.run(scenario())


async def test_a_refused_login() -> None:
    peer = await offered(*ALL)
    peer.sasl(performatives.SASL_OUTCOME, code=1)
    error = await end_of(peer)
    assert isinstance(error, PermanentError)
    assert str(error) == "shovel end: login refused for user 'u': check user and password in its URI"


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ({"is_anonymous": True}, "ANONYMOUS logins, though it offers them: write a user and a password into the URI"),
        ({"mechanisms": (Mechanism.EXTERNAL,)}, "login by client certificate refused"),
    ],
)
async def test_a_refused_login_that_names_no_user(wanted: dict[str, Any], shown: str) -> None:
    peer = await offered(*ALL, **wanted)
    peer.sasl(performatives.SASL_OUTCOME, code=1)
    error = await end_of(peer)
    assert isinstance(error, PermanentError)
    assert shown in str(error) and "'u'" not in str(error)
    assert error.failure.user == peer.wire.closed.result().failure.user == ""


@pytest.mark.parametrize("code", [2, 3, 4, 255])
async def test_a_login_that_the_broker_cant_check_is_tried_again(code: int) -> None:
    peer = await offered(*ALL)
    peer.sasl(performatives.SASL_OUTCOME, code=code)
    error = await end_of(peer)
    assert isinstance(error, TransientError)
    assert "the broker can't check the login now" in str(error)


async def test_no_way_to_log_in_in_common() -> None:
    peer = await offered("GSSAPI", f"X{PASSWORD}", "\x1b[2J")
    error = await end_of(peer)
    assert isinstance(error, PermanentError)
    assert str(error).startswith("shovel end: no common way to log in: the broker offers GSSAPI, X[redacted]")
    assert str(error).isprintable()


@pytest.mark.parametrize(
    "header",
    [b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x01\x00\x00", b"HTTP/1.1 400 Bad Request", b"\x15\x03\x01\x00\x02\x02P"],
)
async def test_another_protocol(header: bytes) -> None:
    peer = Peer.made()
    peer.feed(header, [3])
    error = await end_of(peer)
    assert isinstance(error, PermanentError) and error.failure.kind == FailureKind.INVALID
    assert str(error).startswith("shovel end: the server answers AMQP 1.0 with b'")
    assert str(error).endswith("check the port; RabbitMQ before 4.0 needs its plugin rabbitmq_amqp1_0")


async def test_a_header_that_says_our_password() -> None:
    peer = await offered(*ALL)
    peer.sasl(performatives.SASL_OUTCOME, code=0)
    peer.feed(PASSWORD[:8].encode())
    assert PASSWORD[:8] not in str(await end_of(peer))


@pytest.mark.parametrize("with_open", [True, False])
async def test_a_close_instead_of_an_opening(with_open: bool) -> None:
    """RabbitMQ opens first."""
    peer = Peer.made()
    await peer.log_in()
    if with_open:
        peer.say(performatives.OPEN, container_id="peer")
    why = performatives.ERROR.encode(condition="amqp:not-allowed", description="vhost 'v' not found")
    peer.say(performatives.CLOSE, error=why)
    error = await end_of(peer)
    assert str(error) == "shovel end: vhost 'v' does not exist: create it there or fix the path of the URI"


async def test_a_peer_that_hangs_up() -> None:
    """What an operator learns is what is known by then."""
    nothing_said = Peer.made()
    midway = await offered(*ALL)
    logged_in = Peer.made()
    await logged_in.log_in()
    found = []
    for peer in (nothing_said, midway, logged_in):
        peer.translator.eof_received()
        await peer.lose()
        error = await end_of(peer)
        assert isinstance(error, TransientError)
        found.append(str(error).removeprefix("shovel end: "))
    closed = "the broker closed the connection"
    access = "check that the vhost exists, and the user's access to it"
    assert found == [
        "closed by the server before it sent anything: check that this is an AMQP port",
        f"{closed} (320): CONNECTION_FORCED - closed without a reason during the login",
        f"{closed} (530): NOT_ALLOWED - closed without a reason after the login: {access}",
    ]


MECHANISMS = performatives.frame(
    0, performatives.SASL_MECHANISMS.encode(sasl_server_mechanisms=ALL), performatives.SASL
)
OUTCOME = performatives.frame(0, performatives.SASL_OUTCOME.encode(code=0), performatives.SASL)
OPEN = said(performatives.OPEN, container_id="peer")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (MECHANISMS + MECHANISMS, "sasl-mechanisms where sasl-outcome was due"),
        (OUTCOME, "sasl-outcome where sasl-mechanisms was due"),
        (OPEN, "open where sasl-mechanisms was due"),
        (MECHANISMS + OPEN, "open where sasl-outcome was due"),
        (MECHANISMS + OUTCOME + performatives.PROTOCOL_HEADER + OUTCOME, "sasl-outcome where open was due"),
        (MECHANISMS + OUTCOME + performatives.PROTOCOL_HEADER + OPEN + OUTCOME, "a frame of the login after it"),
        (
            performatives.frame(0, performatives.SASL_CHALLENGE.encode(challenge=b"x"), 1),
            "sasl-challenge where sasl-mech",
        ),
        (performatives.PREFIX.pack(2**31, 2, 1, 0), "a frame of 2147483648 bytes"),
    ],
)
async def test_what_makes_no_sense(what: bytes, why: str) -> None:
    peer = Peer.made()
    peer.feed(performatives.SASL_HEADER + what)
    assert str(await end_of(peer)).startswith(f"shovel end: broken AMQP 1.0: {why}")


async def test_a_login_is_said_once_to_a_peer_that_asks_often() -> None:
    peer = Peer.made()
    peer.feed(performatives.SASL_HEADER + MECHANISMS * 1_000)
    assert len(peer.heard()) <= 1
    assert peer.wire.closed.done()


async def test_what_follows_a_refusal_means_nothing() -> None:
    peer = await offered(*ALL)
    peer.feed(
        performatives.frame(0, performatives.SASL_OUTCOME.encode(code=1), performatives.SASL) + OUTCOME + b"\xff" * 100
    )
    assert "login refused" in str(await end_of(peer))


@pytest.mark.parametrize("stop_at", [0, 1, 2, 3])
def test_a_peer_that_falls_silent_leaves_no_timer(stop_at: int) -> None:
    async def scenario() -> None:
        peer = Peer.made()
        steps = [performatives.SASL_HEADER, MECHANISMS, OUTCOME, performatives.PROTOCOL_HEADER]
        peer.feed(b"".join(steps[:stop_at]))
        await turn()
        assert not peer.opening.done()
        peer.wire.abort(TransientError("given up"))
        await peer.lose()
        await asyncio.wait([peer.opening])
        assert peer.socket.is_closed
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop) and not loop.timers

    in_virtual_time(scenario())
