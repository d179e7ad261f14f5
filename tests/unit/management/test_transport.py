"""The parts of the HTTP API's client that need no broker."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.core.addresses.uri import parse_http
from agent.core.status.advice import advice
from agent.errors import BrokerError, FailureKind, PermanentError, TransientError
from agent.management.client import ManagementClient
from tests.lab.certificates import Authority
from tests.lab.stranger import served


async def test_needs_an_address() -> None:
    with pytest.raises(ValueError, match="no address"):
        ManagementClient([])


async def test_is_used_inside_async_with() -> None:
    client = ManagementClient([parse_http("http://127.0.0.1:1")])
    with pytest.raises(RuntimeError, match="async with"):
        await client.vhosts()


async def test_shows_no_password() -> None:
    client = ManagementClient([parse_http("http://u:S3NTINEL@127.0.0.1:1")])
    assert "S3NTINEL" not in f"{client!r} {vars(client)}"


@asynccontextmanager
async def answering(answer: bytes, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server that answers so, whatever it is asked."""

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with served(answer_once, tls=tls) as port:
        yield port


ECHO = "login of u:S3NTINEL by Basic " + base64.b64encode(b"u:S3NTINEL").decode()


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        ("503 Away", "application/json", json.dumps({"reason": ECHO})),
        ("200 OK", "S3NTINEL/html", "x"),
        ("200 OK", f"text/{'x' * 5000}", "x"),
        (f"500 {ECHO}", "text/plain", ECHO),
    ],
)
async def test_does_not_repeat_the_password_that_a_server_says(status: str, kind: str, body: str) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    async with (
        answering((head + body).encode()) as port,
        ManagementClient([parse_http(f"http://u:S3NTINEL@127.0.0.1:{port}")]) as client,
    ):
        with pytest.raises(BrokerError) as caught:
            await client.vhosts()
    assert "s3ntinel" not in str(caught.value).lower()
    assert "OlMzTlRJTkVM" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Login failed", FailureKind.LOGIN),
        ("User can only log in via localhost", FailureKind.LOGIN),
        ("Not management user", FailureKind.PERMISSION),
        ("User not authorised to access virtual host", FailureKind.PERMISSION),
    ],
)
async def test_a_refusal_has_facts_also_where_another_address_is_away(reason: str, kind: FailureKind) -> None:
    body = json.dumps({"reason": reason})
    head = f"HTTP/1.1 401 No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    async with (
        answering((head + body).encode()) as port,
        ManagementClient([parse_http(f"http://u:p@127.0.0.1:{each}") for each in (1, port)]) as client,
    ):
        with pytest.raises(TransientError) as caught:
            await client.vhosts()
    assert (caught.value.failure.kind, caught.value.failure.user) == (kind, "u")
    shown = advice(kind, "dc1", failures=[caught.value.failure])
    assert "set_permissions" not in shown, "it isn't known what the user lacks"


async def test_blanks_in_a_password_are_no_way_around() -> None:
    """They are joined in a message, and the password looks different then."""
    body = json.dumps({"reason": "no ab  cd here"})
    head = f"HTTP/1.1 503 Away\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    async with (
        answering((head + body).encode()) as port,
        ManagementClient([parse_http(f"http://u:ab%20%20cd@127.0.0.1:{port}")]) as client,
    ):
        with pytest.raises(BrokerError, match=r"503: no \[redacted\] here"):
            await client.vhosts()


async def test_files_of_certificates_are_read_again_after_a_failure(tmp_path: Path) -> None:
    """They may have been renewed; a client that follows a cluster lives as long as the agent."""
    former, present = (Authority.create(tmp_path, name) for name in ("former", "present"))
    own, serving = present.server(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(own.certfile, own.keyfile)
    trusted = tmp_path / "trusted.pem"
    shutil.copy(former.cacertfile, trusted)
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
    async with (
        answering(answer, tls=serving) as port,
        ManagementClient([parse_http(f"https://u:p@127.0.0.1:{port}?cacertfile={trusted}")]) as client,
    ):
        with pytest.raises(PermanentError, match="not trusted"):
            await client.vhosts()
        shutil.copy(present.cacertfile, trusted)
        assert await client.vhosts() == []
