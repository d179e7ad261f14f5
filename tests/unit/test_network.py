"""What operators read when the network, or TLS, says no."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.addresses.secret import Secret
from agent.core.addresses.url_text import Tls
from agent.errors import BrokerError, PermanentError, TransientError
from agent.network import MAX_FILE, explain, hung_up, server_name, tls_context
from tests.lab.certificates import Authority

SENTINEL = "S3NTINEL"


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] (_ssl.c:1)")
    error.reason = reason
    return error


def wrapped(cause: BaseException) -> BaseException:
    """As clients' libraries wrap the network's errors."""
    error = ConnectionError("wrapped")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('::1', 1)"),
            TransientError,
            "refused: check",
        ),
        (OSError("of several addresses"), TransientError, "connection failed: of several addresses"),
        (
            OSError(
                "Multiple exceptions: [Errno 113] Connect call failed ('2001:db8::1', 1), [Errno 111] Connect call"
            ),
            TransientError,
            "connection failed: No route to host, Connection refused",
        ),
        (ConnectionResetError(errno.ECONNRESET, "x"), TransientError, "connection failed: Connection reset by peer"),
        (wrapped(ConnectionResetError(errno.ECONNRESET, "x")), TransientError, "Connection reset by peer"),
        (
            socket.gaierror(-2, "Name or service not known"),
            TransientError,
            "can't be resolved on this machine (Name or service",
        ),
        (TimeoutError(), TransientError, "no answer within 3 s: check the address, firewalls and the broker"),
        (EOFError(), TransientError, "connection failed: EOFError"),
        (OSError(), TransientError, "connection failed: closed by the peer"),
        (tls_error("WRONG_VERSION_NUMBER"), PermanentError, "the server doesn't speak TLS"),
        (tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), PermanentError, "a client certificate is required"),
        (tls_error("TLSV1_ALERT_UNKNOWN_CA"), PermanentError, "the client certificate is refused"),
        (tls_error("SSLV3_ALERT_BAD_CERTIFICATE"), PermanentError, "the client certificate is refused"),
        (tls_error("NO_PROTOCOLS_AVAILABLE"), PermanentError, "TLS failed: NO_PROTOCOLS_AVAILABLE"),
    ],
)
def test_says_what_happened_and_what_to_do(error: BaseException, kind: type[BrokerError], says: str) -> None:
    told = explain(error, where="upstream origin h:1", seconds=3)
    assert type(told) is kind
    assert str(told).startswith("upstream origin h:1: ")
    assert says in str(told)


def test_a_hang_up_in_tls_speaks_of_certificates() -> None:
    assert "set certfile and keyfile" in str(hung_up(Tls(), where="x"))
    assert "check certfile and which authority" in str(hung_up(Tls(certfile="c"), where="x"))


def test_the_name_that_is_asked_for() -> None:
    assert server_name(Tls(), "host") == "host"
    assert server_name(Tls(server_name_indication="other"), "host") == "other"
    assert server_name(Tls(server_name_indication="disable"), "host") == ""
    assert server_name(Tls(server_name_indication=""), "host") == "host"


async def test_verification_is_on_unless_said_otherwise() -> None:
    default = await tls_context(Tls(), where="x")
    assert (default.verify_mode, default.check_hostname) == (ssl.CERT_REQUIRED, True)
    unnamed = await tls_context(Tls(server_name_indication="disable"), where="x")
    assert (unnamed.verify_mode, unnamed.check_hostname) == (ssl.CERT_REQUIRED, False)
    off = await tls_context(Tls(verify=False), where="x")
    assert (off.verify_mode, off.check_hostname) == (ssl.CERT_NONE, False)


async def test_a_key_with_a_password(tmp_path: Path) -> None:
    made = Authority.create(tmp_path).client("client", password=SENTINEL)

    async def load(password: str | None) -> ssl.SSLContext:
        secret = None if password is None else Secret(password)
        return await tls_context(
            Tls(certfile=str(made.certfile), keyfile=str(made.keyfile), password=secret), where="x"
        )

    assert (await load(SENTINEL)).verify_mode is ssl.CERT_REQUIRED
    for wrong in ("wrong", None):  # None must not ask at the terminal
        with pytest.raises(PermanentError, match="or the key's password is wrong") as caught:
            await load(wrong)
        assert SENTINEL not in f"{caught.value} {caught.value.__cause__!r}"


async def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(PermanentError, match=r"x: cacertfile .*missing\.pem can't be used: there is no such file"):
        await tls_context(Tls(cacertfile=missing), where="x")
    with pytest.raises(PermanentError, match=r"x: certfile .*missing\.pem can't be used: there is no such file"):
        await tls_context(Tls(certfile=missing), where="x")
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(PermanentError, match="not a file of PEM certificates"):
        await tls_context(Tls(cacertfile=str(tmp_path / "junk.pem")), where="x")


@pytest.mark.parametrize("key", ["cacertfile", "certfile", "keyfile"])
async def test_a_pipe_is_no_certificate(tmp_path: Path, key: str) -> None:
    made = Authority.create(tmp_path).client("client")
    os.mkfifo(tmp_path / "pipe")
    named: dict[str, Any] = {key: str(tmp_path / "pipe")}
    tls = replace(Tls(certfile=str(made.certfile), keyfile=str(made.keyfile)), **named)
    with pytest.raises(PermanentError, match=rf"^x: {key} .*/pipe can't be used: this is a pipe or device, not a file"):
        await tls_context(tls, where="x")


async def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "large.pem").write_bytes(b"x" * (MAX_FILE + 1))
    with pytest.raises(PermanentError, match="the file is larger than 1 MiB"):
        await tls_context(Tls(cacertfile=str(tmp_path / "large.pem")), where="x")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_what_openssl_reads_is_not_left_open(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    made = authority.client("client")
    tls = Tls(cacertfile=str(authority.cacertfile), certfile=str(made.certfile), keyfile=str(made.keyfile))
    before = open_files()
    context = await tls_context(tls, where="x")
    assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "ca"),),)]
    assert open_files() == before
