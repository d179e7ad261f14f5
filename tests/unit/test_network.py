"""What operators read when the network, or TLS, says no."""

from __future__ import annotations

import errno
import socket
import ssl
from pathlib import Path

import pytest

from agent.core.secret import Secret
from agent.core.url_text import Tls
from agent.errors import BrokerError, PermanentError, TransientError
from agent.network import explain, hung_up, server_name, tls_context
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
        (OSError("Multiple exceptions: [Errno 111] Connect, [Errno 111] Connect"), TransientError, "refused: check"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect, [Errno 113] Connect"),
            TransientError,
            "connection failed: Connection refused, No route to host",
        ),
        (ConnectionResetError(errno.ECONNRESET, "x"), TransientError, "connection failed: Connection reset by peer"),
        (wrapped(ConnectionResetError(errno.ECONNRESET, "x")), TransientError, "Connection reset by peer"),
        (socket.gaierror(-2, "Name or service not known"), TransientError, "can't be resolved (Name or service"),
        (TimeoutError(), TransientError, "no answer within 3 s: check the address, firewalls and the broker"),
        (EOFError(), TransientError, "connection failed: EOFError"),
        (OSError(), TransientError, "connection failed: closed by the peer"),
        (tls_error("WRONG_VERSION_NUMBER"), PermanentError, "no TLS is spoken there"),
        (tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), PermanentError, "a client certificate is wanted"),
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
    assert "give certfile and keyfile" in str(hung_up(Tls(), where="x"))
    assert "check certfile and which authority" in str(hung_up(Tls(certfile="c"), where="x"))


def test_the_name_that_is_asked_for() -> None:
    assert server_name(Tls(), "host") == "host"
    assert server_name(Tls(server_name_indication="other"), "host") == "other"
    assert server_name(Tls(server_name_indication="disable"), "host") == ""


def test_verification_is_on_unless_said_otherwise() -> None:
    default = tls_context(Tls(), where="x")
    assert (default.verify_mode, default.check_hostname) == (ssl.CERT_REQUIRED, True)
    unnamed = tls_context(Tls(server_name_indication="disable"), where="x")
    assert (unnamed.verify_mode, unnamed.check_hostname) == (ssl.CERT_REQUIRED, False)
    off = tls_context(Tls(verify=False), where="x")
    assert (off.verify_mode, off.check_hostname) == (ssl.CERT_NONE, False)


def test_a_key_with_a_password(tmp_path: Path) -> None:
    made = Authority.create(tmp_path).client("client", password=SENTINEL)

    def load(password: str | None) -> ssl.SSLContext:
        secret = None if password is None else Secret(password)
        return tls_context(Tls(certfile=str(made.certfile), keyfile=str(made.keyfile), password=secret), where="x")

    assert load(SENTINEL).verify_mode is ssl.CERT_REQUIRED
    for wrong in ("wrong", None):  # None must not ask at the terminal
        with pytest.raises(PermanentError, match="or the key's password is wrong") as caught:
            load(wrong)
        assert SENTINEL not in f"{caught.value} {caught.value.__cause__!r}"


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(PermanentError, match=r"x: cacertfile .*missing\.pem can't be used: No such file"):
        tls_context(Tls(cacertfile=missing), where="x")
    with pytest.raises(PermanentError, match=r"x: certfile .*missing\.pem can't be used: No such file"):
        tls_context(Tls(certfile=missing), where="x")
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(PermanentError, match="not a file of PEM certificates"):
        tls_context(Tls(cacertfile=str(tmp_path / "junk.pem")), where="x")
