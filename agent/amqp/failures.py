"""An operator's words for what a broker refuses, and whether trying again can help."""

from __future__ import annotations

import asyncio

from aiormq.connection import EXCEPTION_MAPPING
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelClosed,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionClosed,
    ProtocolSyntaxError,
)

from agent.core.uri import Mechanism
from agent.errors import BrokerError, PermanentError, TransientError
from agent.network import explain

ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, PRECONDITION_FAILED, NOT_ALLOWED = 403, 404, 405, 406, 530
_MAX_TEXT = 300
_CONNECTION_CODES: dict[type[BaseException], int] = {kind: code for code, kind in EXCEPTION_MAPPING.items()}
_CHANNEL_CODES: dict[type[BaseException], int] = {
    ChannelAccessRefused: ACCESS_REFUSED,
    ChannelNotFoundEntity: NOT_FOUND,
    ChannelLockedResource: RESOURCE_LOCKED,
    ChannelPreconditionFailed: PRECONDITION_FAILED,
}


def reply(error: AMQPError) -> tuple[int, str]:
    """The reply code and text of a close, which aiormq keeps in the class or in the arguments; 0 for none."""
    code = _CONNECTION_CODES.get(type(error)) or _CHANNEL_CODES.get(type(error))
    if code is None and isinstance(error, ConnectionClosed | ChannelClosed) and len(error.args) == 2:
        code = error.args[0] if isinstance(error.args[0], int) else 0
    text = " ".join(str(error.args[-1] if error.args else "").split())
    return code or 0, text[:_MAX_TEXT]


def refused(code: int, text: str, *, where: str, user: str, vhost: str, mechanism: Mechanism) -> BrokerError:
    """A close that answers the opening of a connection."""
    if "limit" in text:
        return TransientError(f"{where}: a limit on connections is reached: {text}")
    if code == ACCESS_REFUSED and "only connect via localhost" in text:
        return PermanentError(f"{where}: user {user!r} may log in from the broker's own host only: use another user")
    if code == ACCESS_REFUSED and mechanism is Mechanism.EXTERNAL:
        return PermanentError(
            f"{where}: login by client certificate refused: "
            "check that the certificate's name is a user there (ssl_cert_login_from)"
        )
    if code == ACCESS_REFUSED:
        return PermanentError(f"{where}: login refused for user {user!r}: check user and password in its URI")
    if code == NOT_ALLOWED and "not found" in text:
        return PermanentError(f"{where}: vhost {vhost!r} does not exist: create it there or mend the path of the URI")
    if code == NOT_ALLOWED and "access to vhost" in text:
        return PermanentError(f"{where}: user {user!r} may not access vhost {vhost!r}: give it permissions there")
    return TransientError(f"{where}: the broker closed the connection ({code}): {text}")


def opening_failed(error: BaseException, *, where: str) -> BrokerError:
    """Why a server that let us connect gave no AMQP connection, refusals apart."""
    if isinstance(error, ProtocolSyntaxError):
        return PermanentError(f"{where}: the server doesn't speak AMQP 0-9-1 as RabbitMQ does: check address and port")
    if isinstance(error.__cause__, asyncio.IncompleteReadError):
        return TransientError(f"{where}: closed by the server before it greeted: check that this is an AMQP port")
    return explain(error, where=where)


def lost(error: BaseException | None, *, where: str, heartbeat: int) -> BrokerError:
    """Why an open connection ended."""
    if isinstance(error, ConnectionClosed):
        code, text = reply(error)
        return TransientError(f"{where}: the broker closed the connection ({code}): {text}")
    if isinstance(error, asyncio.CancelledError) or error is None:
        return TransientError(f"{where}: heartbeats missed: nothing was heard for over {2 * heartbeat} s")
    if isinstance(error, AMQPError) and isinstance(error.__cause__, asyncio.IncompleteReadError):
        return TransientError(f"{where}: connection lost: closed by the peer without a word")
    return explain(error, where=where)
