"""What every connection shares: TLS contexts, and an operator's words for what went wrong on the way."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from agent.core.url_text import Tls
from agent.errors import BrokerError, PermanentError, TransientError

NO_SNI = "disable"
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_CLIENT_CERTIFICATE_WANTED = "ALERT_CERTIFICATE_REQUIRED"
_CLIENT_CERTIFICATE_REFUSED = ("ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_")


def tls_context(tls: Tls, *, where: str) -> ssl.SSLContext:
    """Reads the certificates (so it blocks); RabbitMQ's `depth` has no counterpart in Python and is left out."""
    context = _trusting(tls, where)
    if tls.certfile is not None:
        try:
            # Given a function, OpenSSL never asks for the password on the terminal.
            password = tls.password.reveal() if tls.password else ""
            context.load_cert_chain(tls.certfile, tls.keyfile, password=lambda: password)
        except (OSError, ValueError) as error:
            files = tls.certfile if tls.keyfile is None else f"{tls.certfile} and keyfile {tls.keyfile}"
            reason = _why_unloadable(error, "not a PEM certificate with its key, or the key's password is wrong")
            raise PermanentError(f"{where}: certfile {files} can't be used: {reason}") from error
    return context


def server_name(tls: Tls, host: str) -> str:
    """The name asked of the peer and expected in its certificate; empty where neither is wanted."""
    if tls.server_name_indication is None:
        return host
    return "" if tls.server_name_indication == NO_SNI else tls.server_name_indication


def read_certificates(path: str) -> list[bytes]:
    """Those of a PEM file, as DER; none where it can't be read: connecting says why."""
    try:
        text = Path(path).read_text(encoding="latin-1")
        return [ssl.PEM_cert_to_DER_cert(found) for found in _CERTIFICATE.findall(text)]
    except (OSError, ValueError):
        return []


def explain(error: BaseException, *, where: str, seconds: float | None = None) -> BrokerError:
    """Our error for one of the network's; `where` leads the message and `seconds` is how long was waited."""
    cause = next((found for found in _chain(error) if isinstance(found, OSError)), None)
    if isinstance(cause, ssl.SSLError):
        return PermanentError(f"{where}: {_why_tls(cause)}")
    if isinstance(cause, TimeoutError):
        waited = "in time" if seconds is None else f"within {seconds:g} s"
        return TransientError(f"{where}: no answer {waited}: check the address, firewalls and the broker")
    if isinstance(cause, socket.gaierror):
        return TransientError(f"{where}: the host's name can't be resolved ({cause.strerror}): check it and DNS")
    reason = _why_os(cause or error)
    if reason == os.strerror(errno.ECONNREFUSED):
        return TransientError(f"{where}: connection refused: check the port and that the broker runs")
    return TransientError(f"{where}: connection failed: {reason}")


def hung_up(tls: Tls, *, where: str) -> BrokerError:
    """TLS 1.3 refuses a client for its certificate only afterwards, in an alert that a reset may overtake."""
    advice = (
        "if it wants a client certificate, give certfile and keyfile"
        if tls.certfile is None
        else "check certfile and which authority the broker trusts"
    )
    return TransientError(f"{where}: closed by the server right after TLS began: {advice}")


def _trusting(tls: Tls, where: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.cacertfile)
    except (OSError, ValueError) as error:
        reason = _why_unloadable(error, "not a file of PEM certificates")
        raise PermanentError(f"{where}: cacertfile {tls.cacertfile} can't be used: {reason}") from error
    if not tls.verify or tls.server_name_indication == NO_SNI:
        context.check_hostname = False
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    return context


def _why_unloadable(error: OSError | ValueError, otherwise: str) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror:
        return error.strerror
    return otherwise


def _why_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}: "
            "check cacertfile and the host's name in the certificate"
        )
    reason = error.reason or "unknown reason"
    if reason == "WRONG_VERSION_NUMBER":
        return "no TLS is spoken there: check that this is the TLS port"
    if _CLIENT_CERTIFICATE_WANTED in reason:
        return "a client certificate is wanted: give certfile and keyfile"
    if any(alert in reason for alert in _CLIENT_CERTIFICATE_REFUSED):
        return f"the client certificate is refused ({reason}): check certfile and which CA the broker trusts"
    return f"TLS failed: {reason}"


def _why_os(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is None:
        # Several addresses were tried, and asyncio joined what each of them said.
        reasons = dict.fromkeys(os.strerror(int(number)) for number in _ERRNO.findall(str(error)))
        return ", ".join(reasons) or str(error) or "closed by the peer"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what caused it, the deepest first: wrappers of the network's errors are errors of the OS too."""
    if error is not None:
        yield from _chain(error.__cause__)
        yield error
