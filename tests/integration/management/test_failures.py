"""What an operator reads when an HTTP API can't be used, and that it holds no secret."""

import time
from collections.abc import Awaitable, Callable

import pytest

from agent.core.addresses.uri import parse_http
from agent.errors import BrokerError, PermanentError, TransientError
from agent.management.client import ManagementClient
from tests.integration.conftest import TlsBroker
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.stranger import stranger

SENTINEL = "S3NTINEL"
Naming = Callable[[str], str]
Question = Callable[[ManagementClient], Awaitable[object]]


async def failure(*urls: str, ask: Question = ManagementClient.parameters, seconds: float = 10) -> BrokerError:
    async with ManagementClient([parse_http(url) for url in urls], timeout=seconds) as client:
        with pytest.raises(BrokerError) as caught:
            await ask(client)
    told: BaseException | None = caught.value
    while told is not None:
        assert SENTINEL not in f"{told} {told!r}"
        told = told.__cause__
    return caught.value


async def test_a_wrong_password(broker: Node) -> None:
    error = await failure(broker.management_uri(password=SENTINEL))
    assert isinstance(error, PermanentError)
    assert str(error) == (
        f"downstream {broker.management_url}: login refused for user 'guest' (401): "
        "check user and password in downstream.management"
    )


@pytest.mark.parametrize(
    ("tags", "ask", "says"),
    [
        ("", ManagementClient.overview, "may not use the HTTP API (401): it needs the tags policymaker and monitoring"),
        ("management", ManagementClient.parameters, "it needs the tag policymaker or administrator"),
        ("monitoring", lambda client: client.global_parameter("x"), "it needs the tag policymaker or administrator"),
        ("policymaker", lambda client: client.queues("/"), "it needs permissions in vhost '/'"),
        ("monitoring", lambda client: client.delete_shovel("/", "s"), "it needs the tag policymaker or administrator"),
        ("policymaker", lambda client: client.delete_shovel("/", "s"), "and permissions in vhost '/'"),
    ],
)
async def test_a_missing_permission(broker: Node, name: Naming, tags: str, ask: Question, says: str) -> None:
    user = name("user")
    broker.admin.user(user, SENTINEL, tags)
    error = await failure(broker.management_uri(user, SENTINEL), ask=ask)
    assert isinstance(error, PermanentError)
    assert f"user '{user}'" in str(error)
    assert says in str(error)


async def test_a_shovel_that_nobody_defines_is_deleted_already(broker: Node) -> None:
    async with ManagementClient([parse_http(broker.management_uri())]) as client:
        await client.delete_shovel("/", "nobody")
        assert await client.shovels() is None  # without the plugin


async def test_native_links_need_monitoring(native_broker: Node, name: Naming) -> None:
    user = name("user")
    native_broker.admin.user(user, SENTINEL, "policymaker")
    error = await failure(native_broker.management_uri(user, SENTINEL), ask=ManagementClient.federation_links)
    assert "it needs the tag monitoring or administrator" in str(error)


async def test_a_dead_port(lab: Lab) -> None:
    error = await failure(f"http://u:{SENTINEL}@127.0.0.1:{lab.ports.take()}")
    assert isinstance(error, TransientError)
    assert "connection refused: check the port and that the broker runs" in str(error)


async def test_a_dead_port_of_a_host_with_two_addresses(lab: Lab) -> None:
    assert "connection refused" in str(await failure(f"http://localhost:{lab.ports.take()}"))


async def test_an_unknown_host() -> None:
    error = await failure(f"http://u:{SENTINEL}@nowhere.invalid")
    assert isinstance(error, TransientError)
    assert "the host's name can't be resolved" in str(error)


async def test_the_amqp_port(broker: Node) -> None:
    error = await failure(f"http://u:{SENTINEL}@127.0.0.1:{broker.amqp_port}")
    assert "the server doesn't speak HTTP: this is not RabbitMQ's HTTP API" in str(error)


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", PermanentError, "not RabbitMQ's HTTP API"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{", PermanentError, "not RabbitMQ's HTTP API"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}", PermanentError, "not RabbitMQ's HTTP API"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[1]", PermanentError, "not RabbitMQ's HTTP API"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", PermanentError, "not RabbitMQ's HTTP API"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://x\r\n\r\n", PermanentError, "redirects elsewhere (302)"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", TransientError, "the HTTP API fails (503): see the broker's"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", PermanentError, "refused for user 'u' (403)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[", TransientError, "the response was cut short"),
        (b"", TransientError, "connection failed"),
        (b"\x00\xff garbage\r\n\r\n", TransientError, "the server doesn't speak HTTP"),
    ],
)
async def test_another_server(answer: bytes, kind: type[BrokerError], says: str) -> None:
    async with stranger(answer) as port:
        error = await failure(f"http://u:{SENTINEL}@127.0.0.1:{port}")
    assert isinstance(error, kind)
    assert says in str(error)


async def test_a_server_that_never_answers() -> None:
    async with stranger(None) as port:
        error = await failure(f"http://u:{SENTINEL}@127.0.0.1:{port}", seconds=0.3)
    assert isinstance(error, TransientError)
    assert "no answer within 0.3 s" in str(error)


async def test_the_next_address_is_tried_at_once_and_remembered(lab: Lab, broker: Node) -> None:
    async with stranger(None) as port:
        urls = [f"http://127.0.0.1:{lab.ports.take()}", f"http://127.0.0.1:{port}", broker.management_uri()]
        async with ManagementClient([parse_http(url) for url in urls], timeout=4) as client:
            assert (await client.overview())["cluster_name"] == broker.cluster_name
            took: list[float] = []
            for _ in range(3):
                begun = time.monotonic()
                assert await client.vhosts()
                took.append(time.monotonic() - begun)
            assert min(took) < 3.9, "the silent one isn't asked again"


async def test_all_addresses_fail(lab: Lab, broker: Node) -> None:
    dead = f"http://127.0.0.1:{lab.ports.take()}"
    error = await failure(dead, broker.management_uri(password=SENTINEL))
    assert isinstance(error, TransientError)
    assert "connection refused" in str(error)
    assert "login refused" in str(error)


async def test_tls_verifies_the_broker(tls_broker: TlsBroker) -> None:
    for host in ("localhost", "127.0.0.1"):
        async with ManagementClient([parse_http(tls_broker.https(tls_broker.trust, host=host))]) as client:
            assert (await client.overview())["cluster_name"]
    async with ManagementClient([parse_http(tls_broker.https("verify=verify_none"))]) as client:
        assert (await client.overview())["cluster_name"]


async def test_tls_that_can_not_be_trusted(tls_broker: TlsBroker, expired_tls_broker: TlsBroker) -> None:
    assert "its certificate is not trusted: self-signed certificate" in str(await failure(tls_broker.https()))
    wrong_name = tls_broker.https(f"{tls_broker.trust}&server_name_indication=other.example")
    assert "not trusted: Hostname mismatch" in str(await failure(wrong_name))
    expired = expired_tls_broker.https(expired_tls_broker.trust)
    assert "not trusted: certificate has expired" in str(await failure(expired))


async def test_tls_with_a_certificate_of_our_own(strict_tls_broker: TlsBroker) -> None:
    shown = f"{strict_tls_broker.trust}&{strict_tls_broker.show('guest')}"
    async with ManagementClient([parse_http(strict_tls_broker.https(shown))]) as client:
        assert (await client.overview())["cluster_name"]
    message = str(await failure(strict_tls_broker.https(strict_tls_broker.trust)))
    assert "client certificate" in message
    assert "set certfile and keyfile" in message


async def test_tls_where_there_is_none(broker: Node) -> None:
    error = await failure(broker.management_uri(password=SENTINEL).replace("http:", "https:"))
    assert "the server doesn't speak TLS: check that this is the TLS port" in str(error)


async def test_tls_files_that_can_not_be_used(tls_broker: TlsBroker) -> None:
    missing = await failure(tls_broker.https("cacertfile=/nowhere/ca.pem"))
    assert "cacertfile /nowhere/ca.pem can't be used: there is no such file" in str(missing)
    key = tls_broker.authority.own.keyfile
    assert "not a file of PEM certificates" in str(await failure(tls_broker.https(f"cacertfile={key}")))
    locked = tls_broker.authority.client("locked", password="right")
    query = f"{tls_broker.trust}&certfile={locked.certfile}&keyfile={locked.keyfile}&password={SENTINEL}"
    assert "or the key's password is wrong" in str(await failure(tls_broker.https(query)))
