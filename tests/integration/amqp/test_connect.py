"""Connecting to real brokers: how, and what an operator reads when it fails."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.amqp.connect import connect, connect_any
from agent.amqp.wire import methods
from agent.core.addresses.uri import Mechanism, parse
from agent.errors import BrokerError, PermanentError, TransientError, UriError
from tests.integration.amqp.conftest import Connecting
from tests.integration.conftest import TlsBroker
from tests.lab.certificates import Authority
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.stranger import hang_up, served, stranger
from tests.lab.waiting import DEADLINE, eventually

SENTINEL = "S3NTINEL"
Naming = Callable[[str], str]
Proxies = Callable[[Node | int], Proxy]


async def failure(*uris: str, seconds: float = 10) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        await connect_any([parse(uri) for uri in uris], where="upstream origin", name="test", within=seconds)
    told: BaseException | None = caught.value
    while told is not None:
        assert SENTINEL not in f"{told} {told!r}"
        told = told.__cause__
    return caught.value


def permanent(error: BrokerError) -> str:
    assert isinstance(error, PermanentError)
    return str(error)


def transient(error: BrokerError) -> str:
    assert type(error) is TransientError
    return str(error)


async def test_shows_its_name_and_no_credentials(broker: Node, connecting: Connecting, name: Naming) -> None:
    shown = name("Federation link (upstream: origin, policy: p)")
    await connecting(broker.uri(), name=shown)

    def properties() -> dict[str, object] | None:
        found = [each["client_properties"] for each in broker.admin.get("connections") if "client_properties" in each]
        return next((each for each in found if each.get("connection_name") == shown), None)

    assert (eventually(properties, what="the connection is listed") or {})["product"] == "federation-agent"


@pytest.mark.parametrize("mechanism", ["plain", "amqplain"])
@pytest.mark.parametrize("password", ["p:@/%ä", "long" * 20])
async def test_logs_in_and_tells_nobody(
    broker: Node, connecting: Connecting, caplog: pytest.LogCaptureFixture, mechanism: str, password: str
) -> None:
    user, secret = f"user-{mechanism}-{len(password)}", SENTINEL + password
    broker.admin.user(user, secret)
    broker.admin.permissions("/", user)
    with caplog.at_level(logging.DEBUG):
        connection = await connecting(f"{broker.uri('/', user, secret)}?auth_mechanism={mechanism}")
        assert SENTINEL not in f"{connection.wire!r} {vars(connection.wire)} {vars(connection)}"
        await connection.close()
    assert SENTINEL not in caplog.text


async def test_a_vhost_of_any_name(broker: Node, connecting: Connecting, name: Naming) -> None:
    with broker.admin.temporary_vhost(name("a/b%2Fc d?ä")) as vhost:
        connection = await connecting(broker.uri(vhost))
        assert connection.vhost == vhost
        channel = await connection.channel()
        await channel.ask(methods.QUEUE_DECLARE, queue="here", durable=True)
        assert broker.admin.get("queues", vhost, "here")["name"] == "here"


async def test_the_vhost_of_a_uri_without_a_path(broker: Node, vhost: str) -> None:
    uri = parse(f"amqp://127.0.0.1:{broker.amqp_port}")
    async with await connect(uri, where="upstream origin", name="test", default_vhost=vhost) as connection:
        assert connection.vhost == vhost


async def test_limits_of_the_uri(broker: Node, connecting: Connecting) -> None:
    connection = await connecting(f"{broker.uri()}?channel_max=3&frame_max=8192&heartbeat=7")
    assert connection.channel_max == 3
    assert connection.wire.frame_max == 8192
    assert connection.wire.heartbeat == 7
    for _ in range(3):
        await connection.channel()
    with pytest.raises(TransientError, match="all 3 channels of a connection are in use: raise channel_max"):
        await connection.channel()


async def test_no_heartbeat(broker: Node, connecting: Connecting) -> None:
    connection = await connecting(f"{broker.uri()}?heartbeat=0")
    assert connection.wire.heartbeat == 0
    await connection.channel()


async def test_a_wrong_password(broker: Node) -> None:
    message = permanent(await failure(broker.uri(password=SENTINEL)))
    assert message == (
        f"upstream origin 127.0.0.1:{broker.amqp_port}: login refused for user 'guest': "
        "check user and password in its URI"
    )


@pytest.mark.parametrize("word", ["missing", "limit is reached"])
async def test_a_missing_vhost(broker: Node, name: Naming, word: str) -> None:
    missing = name(word)
    message = permanent(await failure(broker.uri(missing)))
    assert f"vhost '{missing}' does not exist: create it there" in message


@pytest.mark.parametrize("word", ["user", "limited"])
async def test_no_permission_in_the_vhost(broker: Node, name: Naming, word: str) -> None:
    user = name(word)
    broker.admin.user(user, SENTINEL)
    message = permanent(await failure(broker.uri("/", user, SENTINEL)))
    assert f"user '{user}' may not access vhost '/': give it permissions there" in message


async def test_a_limit_of_connections(broker: Node, name: Naming) -> None:
    with broker.admin.temporary_vhost(name("vhost")) as vhost:
        broker.admin.put("vhost-limits", vhost, "max-connections", body={"value": 0})
        assert "a limit on connections is reached" in transient(await failure(broker.uri(vhost)))
    user = name("user")
    broker.admin.user(user, SENTINEL)
    broker.admin.permissions("/", user)
    broker.admin.put("user-limits", user, "max-connections", body={"value": 0})
    assert "a limit on connections is reached" in transient(await failure(broker.uri("/", user, SENTINEL)))


async def test_a_mechanism_that_the_broker_lacks(broker: Node) -> None:
    message = permanent(await failure(f"{broker.uri()}?auth_mechanism=external"))
    assert "no common way to log in: the broker offers" in message
    assert message.endswith("auth_mechanism allows EXTERNAL")


async def test_a_dead_port(lab: Lab) -> None:
    for host in ("127.0.0.1", "localhost"):
        message = transient(await failure(f"amqp://u:{SENTINEL}@{host}:{lab.ports.take()}"))
        assert "connection refused: check the port and that the broker runs" in message


async def test_an_unknown_host() -> None:
    assert "the host's name can't be resolved" in transient(await failure("amqp://nowhere.invalid"))


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\xff garbage", b"SSH-2.0-x\r\n"])
async def test_another_server(answer: bytes) -> None:
    async with stranger(answer) as port:
        message = permanent(await failure(f"amqp://u:{SENTINEL}@127.0.0.1:{port}"))
    assert f"not AMQP: the response begins with {answer[:16]!r}: check the port" in message


async def test_another_amqp() -> None:
    async with stranger(b"AMQP\x03\x01\x00\x00") as port:
        assert "doesn't speak AMQP 0-9-1" in permanent(await failure(f"amqp://127.0.0.1:{port}"))


@pytest.mark.parametrize(
    "answer", [b"", b"\x01\x00\x00\x00\x00\x01\xff\x00\x0a", b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x63\xce"]
)
async def test_a_server_that_hangs_up(answer: bytes) -> None:
    async with stranger(answer) as port:
        message = str(await failure(f"amqp://u:{SENTINEL}@127.0.0.1:{port}"))
    assert message.startswith(f"upstream origin 127.0.0.1:{port}: ")
    assert "AMQP" in message


@pytest.mark.parametrize(
    ("scheme", "addresses"), [("amqps", ["127.0.0.1"]), ("amqp", ["127.0.0.2", "127.0.0.1"])], ids=["one", "two"]
)
async def test_a_server_that_never_answers(scheme: str, addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the first of two addresses."""
    found = [(0, 0, 0, "", (address, 0)) for address in addresses]
    async with stranger(None) as port:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", lambda *_, **__: found)  # no name has two on every machine
            error = await failure(f"{scheme}://u:{SENTINEL}@two.example:{port}?verify=verify_none", seconds=2)
    message = transient(error)
    assert "connected, but no AMQP within 2 s: the broker is frozen or overloaded, or" in message


async def test_the_next_endpoint_is_tried(lab: Lab, broker: Node) -> None:
    uris = [parse(f"amqp://127.0.0.1:{lab.ports.take()}"), parse(broker.uri())]
    async with await connect_any(uris, where="upstream origin", name="test") as connection:
        assert connection.where.endswith(f":{broker.amqp_port}")


async def test_no_endpoint_lets_us_in(lab: Lab, broker: Node) -> None:
    message = transient(await failure(f"amqp://127.0.0.1:{lab.ports.take()}", broker.uri(password=SENTINEL)))
    assert "connection refused" in message
    assert "login refused" in message


async def test_tells_why_it_was_closed(lab: Lab, broker: Node, connecting: Connecting, name: Naming) -> None:
    shown = name("connection")
    connection = await connecting(broker.uri(), name=shown)

    def listed() -> str | None:
        found = broker.admin.get("connections")
        return next((each["name"] for each in found if each.get("user_provided_name") == shown), None)

    broker.admin.delete("connections", eventually(listed, what="the connection is listed") or "")
    message = transient(await asyncio.shield(connection.wire.closed))
    assert "the broker closed the connection (320): CONNECTION_FORCED" in message
    assert connection.is_closed
    with pytest.raises(TransientError, match="CONNECTION_FORCED"):
        await connection.channel()
    await connection.close()


@pytest.mark.parametrize("reset", [True, False])
async def test_tells_that_the_wire_was_cut(
    broker: Node, connecting: Connecting, proxy_to: Proxies, reset: bool
) -> None:
    proxy = proxy_to(broker)
    connection = await connecting(broker.uri(port=proxy.port))
    channel = await connection.channel()
    proxy.cut(reset=reset)
    assert "connection" in transient(await asyncio.shield(connection.wire.closed))
    with pytest.raises(TransientError):
        await channel.ask(methods.QUEUE_DECLARE, queue="never", passive=True)


async def test_tells_that_heartbeats_are_missed(broker: Node, connecting: Connecting, proxy_to: Proxies) -> None:
    proxy = proxy_to(broker)
    connection = await connecting(f"{broker.uri(port=proxy.port)}?heartbeat=1")
    channel = await connection.channel()
    proxy.blackhole()
    with pytest.raises(TransientError, match="heartbeats missed"):
        async with asyncio.timeout(DEADLINE):
            await channel.ask(methods.QUEUE_DECLARE, queue="never", passive=True)


async def test_closing_may_be_done_twice(broker: Node, connecting: Connecting) -> None:
    connection = await connecting(broker.uri())
    await asyncio.gather(connection.close(), connection.close())
    await connection.close()
    assert connection.is_closed
    with pytest.raises(TransientError, match="the agent closed the connection"):
        await connection.channel()


async def test_being_cancelled_leaves_no_connection(broker: Node, proxy_to: Proxies) -> None:
    proxy = proxy_to(broker)
    proxy.delay(0.05)
    for turn in range(8):
        uri = parse(broker.uri(port=proxy.port))
        opening = asyncio.create_task(connect(uri, where="upstream origin", name="test"))
        await asyncio.wait([opening], timeout=0.03 * turn)
        if not opening.cancel():
            await (await opening).close()
        await asyncio.wait([opening])
    eventually(lambda: proxy.connections == 0, what="all connections are gone")


async def test_tls_verifies_the_broker(tls_broker: TlsBroker) -> None:
    for query in (tls_broker.trust, "verify=verify_none", f"{tls_broker.trust}&server_name_indication=disable"):
        uri = parse(tls_broker.amqps(query))
        async with await connect(uri, where="upstream origin", name="test", within=DEADLINE) as connection:
            await connection.channel()


async def test_tls_that_can_not_be_trusted(tls_broker: TlsBroker, expired_tls_broker: TlsBroker) -> None:
    message = permanent(await failure(tls_broker.amqps()))
    assert "its certificate is not trusted: self-signed certificate in certificate chain" in message
    wrong_name = tls_broker.amqps(f"{tls_broker.trust}&server_name_indication=other.example")
    assert "Hostname mismatch" in permanent(await failure(wrong_name))
    expired = expired_tls_broker.amqps(expired_tls_broker.trust)
    assert "certificate has expired" in permanent(await failure(expired))


async def test_tls_where_there_is_none_and_none_where_there_is(broker: Node, tls_broker: TlsBroker) -> None:
    message = permanent(await failure(broker.uri().replace("amqp:", "amqps:")))
    assert "the server doesn't speak TLS: check that this is the TLS port" in message
    message = permanent(await failure(f"amqp://localhost:{tls_broker.amqps_port}"))
    assert "this is a TLS port: write amqps://" in message


async def test_tls_with_no_certificate_where_one_is_wanted(strict_tls_broker: TlsBroker) -> None:
    message = str(await failure(strict_tls_broker.amqps(strict_tls_broker.trust)))
    assert "client certificate" in message
    assert "set certfile and keyfile" in message


async def test_tls_with_a_certificate_of_a_stranger(strict_tls_broker: TlsBroker, tls_broker: TlsBroker) -> None:
    query = f"{strict_tls_broker.trust}&{tls_broker.show('guest')}"
    message = str(await failure(strict_tls_broker.amqps(query)))
    assert "check certfile and which" in message


async def test_logs_in_by_certificate(strict_tls_broker: TlsBroker, name: Naming) -> None:
    user = name("by-certificate")
    strict_tls_broker.node.admin.user(user, SENTINEL)
    strict_tls_broker.node.admin.permissions("/", user)
    query = f"{strict_tls_broker.trust}&{strict_tls_broker.show(user)}&auth_mechanism=external"
    uri = parse(strict_tls_broker.amqps(query, login=""))
    async with await connect(uri, where="upstream origin", name="test", within=DEADLINE) as connection:
        assert connection.wire.mechanism is Mechanism.EXTERNAL


async def test_a_certificate_that_is_no_user(tls_broker: TlsBroker) -> None:
    query = f"{tls_broker.trust}&{tls_broker.show('nobody')}&auth_mechanism=external"
    message = permanent(await failure(tls_broker.amqps(query, login="")))
    assert "login by client certificate refused" in message


async def test_an_empty_server_name_does_not_switch_the_check_off(tmp_path: Path, tls_broker: TlsBroker) -> None:
    with pytest.raises(UriError, match="server_name_indication is empty"):
        parse(tls_broker.amqps(f"{tls_broker.trust}&server_name_indication="))
    authority = Authority.create(tmp_path)
    other = authority.server("other", names="DNS:other.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other.certfile, other.keyfile)
    async with served(hang_up, tls=context) as port:
        uri = parse(f"amqps://127.0.0.1:{port}?cacertfile={authority.cacertfile}")
        assert uri.tls is not None
        for name in ("", None):
            unnamed = replace(uri, tls=replace(uri.tls, server_name_indication=name))
            with pytest.raises(PermanentError, match="its certificate is not trusted: IP address mismatch"):
                await connect(unnamed, where="upstream origin", name="test", within=DEADLINE)


async def test_a_disabled_server_name_still_wants_a_trusted_authority(tls_broker: TlsBroker) -> None:
    message = permanent(await failure(tls_broker.amqps("server_name_indication=disable")))
    assert "its certificate is not trusted: self-signed certificate in certificate chain" in message
