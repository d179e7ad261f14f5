"""Shared by all connections: TLS contexts, the files that they need, and network errors in an operator's words.

Tenants may name the files: a disk that hangs affects nothing else.

Why: docs/decisions/0021-files-that-tenants-name.md
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Final

from agent.core.addresses.url_text import Tls
from agent.errors import BrokerError, Failure, FailureKind, PermanentError, TransientError
from agent.read_file import UnreadableError, read_file

NO_SNI = "disable"
_TLS: Final = Failure(FailureKind.TLS)
MAX_FILE: Final = 1024 * 1024  # of certificates: a system's own bundle is a quarter of it
READ_WITHIN: Final = 10.0  # seconds
MOST_HANGING: Final = 32  # threads that may wait for a disk at the same time
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_CLIENT_CERTIFICATE_WANTED = "ALERT_CERTIFICATE_REQUIRED"
_CLIENT_CERTIFICATE_REFUSED = ("ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_")


async def tls_context(tls: Tls, *, where: str) -> ssl.SSLContext:
    """RabbitMQ's `depth` has no counterpart in Python and is ignored. Anyone who may define an upstream can name these
    files, so they are read with limits; OpenSSL gets only what was read.
    """
    named = {"cacertfile": tls.cacertfile, "certfile": tls.certfile, "keyfile": tls.keyfile}
    files = {key: await _read(path, where=where, key=key) for key, path in named.items() if path is not None}
    return await asyncio.to_thread(_context, tls, files, where)


def server_name(tls: Tls, host: str) -> str:
    """The name sent to the peer and expected in its certificate; empty if neither is wanted."""
    if not tls.server_name_indication:  # an empty one must not disable the check
        return host
    return "" if tls.server_name_indication == NO_SNI else tls.server_name_indication


async def read_certificates(path: str) -> list[bytes]:
    """The certificates of a PEM file, as DER; none if it can't be read: connecting reports the reason."""
    try:
        text = (await read_in_time(path, MAX_FILE)).decode("latin-1")
        return [ssl.PEM_cert_to_DER_cert(found) for found in _CERTIFICATE.findall(text)]
    except (UnreadableError, ValueError):
        return []


class HangingError(UnreadableError):
    """The disk doesn't answer now; it may later."""


async def read_in_time(
    path: str, limit: int, *, within: float = READ_WITHIN, read: Callable[[str, int], bytes] = read_file
) -> bytes:
    """`read_file` within a deadline.

    The thread is a daemon, so the end of the process doesn't wait for it either. A file that hangs is not read again
    before it answers.
    """
    _refuse_hanging(path)
    reader = _FileReader(path, partial(read, path, limit))
    reader.start()
    try:
        async with asyncio.timeout(within):
            return await asyncio.wrap_future(reader.done)
    except TimeoutError as error:
        raise HangingError(f"the file can't be read within {within:g} s; check the disk that it is on") from error
    finally:
        reader.is_left = not reader.done.done()


class _FileReader(threading.Thread):
    """Reads one file; `is_left` when the result is no longer awaited."""

    def __init__(self, path: str, read: Callable[[], bytes]) -> None:
        super().__init__(name=f"read {path}", daemon=True)
        self.path = path
        self.is_left = False
        self.done: Future[bytes] = Future()
        self.done.set_running_or_notify_cancel()  # from here on it can't be cancelled
        self._read = read

    def run(self) -> None:
        try:
            data = self._read()
        except UnreadableError as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(data)


def _refuse_hanging(path: str) -> None:
    hanging = [each.path for each in threading.enumerate() if isinstance(each, _FileReader) and each.is_left]
    if path in hanging:
        raise HangingError("an earlier attempt to read the file still hangs; check the disk that it is on")
    if len(hanging) >= MOST_HANGING:
        raise HangingError(f"{MOST_HANGING} other files hang; check the disks that certificates are on")


def explain(error: BaseException, *, where: str, seconds: float | None = None) -> BrokerError:
    """Converts a network error to ours; the message starts with `where`, and `seconds` is the time waited."""
    cause = next((found for found in _chain(error) if isinstance(found, OSError)), None)
    if isinstance(cause, ssl.SSLError):
        return PermanentError(_why_tls(cause), where=where, facts=_TLS)
    if isinstance(cause, TimeoutError):
        waited = "in time" if seconds is None else f"within {seconds:g} s"
        return TransientError(f"no answer {waited}: check the address, firewalls and the broker", where=where)
    if isinstance(cause, socket.gaierror):
        return TransientError(
            f"the host's name can't be resolved on this machine ({cause.strerror}): check it and DNS",
            where=where,
            facts=Failure(FailureKind.UNRESOLVED),
        )
    if cause is not None and cause.errno == errno.ECONNREFUSED:
        return TransientError("connection refused: check the port and that the broker runs", where=where)
    return TransientError(f"connection failed: {why_os(cause or error)}", where=where)


def hung_up(tls: Tls, *, where: str) -> BrokerError:
    """TLS 1.3 refuses a client's certificate only after the handshake, in an alert that a reset may overtake."""
    advice = (
        "if it requires a client certificate, set certfile and keyfile"
        if tls.certfile is None
        else "check certfile and which authority the broker trusts"
    )
    return TransientError(f"closed by the server right after TLS began: {advice}", where=where, facts=_TLS)


async def _read(path: str, *, where: str, key: str) -> bytes:
    try:
        return await read_in_time(path, MAX_FILE)
    except HangingError as error:
        raise TransientError(f"{key} {path} can't be used: {error}", where=where) from error
    except UnreadableError as error:
        raise PermanentError(f"{key} {path} can't be used: {error}", where=where, facts=_TLS) from error


def _context(tls: Tls, files: Mapping[str, bytes], where: str) -> ssl.SSLContext:
    # With a function, OpenSSL never asks for the password on the terminal.
    password = tls.password.reveal() if tls.password else ""
    what, why = f"cacertfile {tls.cacertfile}", "not a file of PEM certificates"
    try:
        with _in_memory(files.get("cacertfile", b"")) as cacertfile:
            context = ssl.create_default_context(cafile=None if tls.cacertfile is None else cacertfile)
        if tls.certfile is not None:
            what = f"certfile {tls.certfile}" + ("" if tls.keyfile is None else f" and keyfile {tls.keyfile}")
            why = "not a PEM certificate with its key, or the key's password is wrong"
            with _in_memory(files["certfile"]) as certfile, _in_memory(files.get("keyfile", b"")) as keyfile:
                context.load_cert_chain(certfile, None if tls.keyfile is None else keyfile, password=lambda: password)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            why = error.strerror or why
        raise PermanentError(f"{what} can't be used: {why}", where=where, facts=_TLS) from error
    if not tls.verify or tls.server_name_indication == NO_SNI:
        context.check_hostname = False
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """A path for OpenSSL, which reads a key only from a file; no other process can open this one."""
    with os.fdopen(os.memfd_create("certificate"), "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _why_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}: "
            "check cacertfile and the host's name in the certificate"
        )
    reason = error.reason or "unknown reason"
    if reason == "WRONG_VERSION_NUMBER":
        return "the server doesn't speak TLS: check that this is the TLS port"
    if _CLIENT_CERTIFICATE_WANTED in reason:
        return "a client certificate is required: set certfile and keyfile"
    if any(alert in reason for alert in _CLIENT_CERTIFICATE_REFUSED):
        return f"the client certificate is refused ({reason}): check certfile and which CA the broker trusts"
    return f"TLS failed: {reason}"


def why_os(error: BaseException) -> str:
    """What the system says of an error, without the address that Python adds."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    if isinstance(error, OSError):  # clients' libraries join the errors of several addresses in a text
        reasons = dict.fromkeys(os.strerror(int(number)) for number in _ERRNO.findall(str(error)))
        return ", ".join(reasons) or str(error) or "closed by the peer"
    return str(error) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes, the deepest first: wrappers of network errors are OS errors too."""
    if error is not None:
        yield from _chain(error.__cause__)
        yield error
