"""Turns refusals of a broker, and ends of connections, into errors in an operator's words; the type of the error shows
if trying again can help.

Why: docs/decisions/0040-failures-are-values.md
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from ssl import SSLError

from agent.amqp.wire.channel import ChannelClosedError, UnansweredError
from agent.amqp.wire.ends import ConnectionClosedError, EndOfStreamError, HeartbeatMissedError, NotAmqpError, one_line
from agent.amqp.wire.login import Terms
from agent.amqp.wire.refusal_texts import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    OpeningRefusal,
    alarm_of,
    is_over_user_id,
    opening_refusal,
    user_of,
)
from agent.core.addresses.uri import FRAME_MAX_SINCE_4_1, Mechanism
from agent.core.addresses.url_text import Tls
from agent.errors import BrokerError, Failure, FailureKind, PermanentError, TransientError
from agent.network import explain, hung_up

__all__ = [
    "ACCESS_REFUSED",
    "NOT_ALLOWED",
    "NOT_FOUND",
    "PRECONDITION_FAILED",
    "RESOURCE_LOCKED",
    "NoAccessError",
    "alarm_of",
    "blames_message",
    "lost",
    "one_line",
    "opening_failed",
    "update_failed",
]

_OVER_WHAT_WAS_READ = frozenset({501, 502, 503, 504, 505, 540, 541})
_OVER_A_MESSAGE = frozenset({PRECONDITION_FAILED, 503})
_TLS_ALERT = b"\x15\x03"


class NoAccessError(PermanentError):
    """The user may log in, but not use the vhost."""


def opening_failed(error: BrokerError, terms: Terms, mechanism: Mechanism | None, tls: Tls | None) -> BrokerError:
    """The error if a server accepted the TCP connection and no AMQP connection was opened."""
    where = terms.where
    match error:
        case ConnectionClosedError():
            return _refused(error.code, error.what, terms, mechanism)
        case NotAmqpError():
            is_tls = error.begin.startswith(_TLS_ALERT)
            facts = Failure(FailureKind.TLS if is_tls else FailureKind.INVALID)
            return PermanentError(terms.redacted(_not_amqp(error.begin)), where=where, facts=facts)
        case PermanentError():
            return PermanentError(error.what, where=error.where)
        case EndOfStreamError() if mechanism is not None and 0 < (terms.frame_max or 0) < FRAME_MAX_SINCE_4_1:
            least = f"brokers from 4.1 on need {FRAME_MAX_SINCE_4_1} or more"
            return PermanentError(f"connection closed on frame_max={terms.frame_max}: {least}", where=where)
        case EndOfStreamError() if mechanism is None and tls is not None and not isinstance(error.__cause__, SSLError):
            return hung_up(tls, where=where)
        case EndOfStreamError() if error.__cause__ is not None:
            return explain(error.__cause__, where=where)
        case EndOfStreamError() if mechanism is None:
            return TransientError(
                "closed by the server before it sent anything: check that this is an AMQP port", where=where
            )
        case _:
            return lost(error, where=where)


def blames_message(error: BrokerError) -> bool:
    """True if a broker closed a connection, or the channel, because of data that it read: a message may be the cause.

    Brokers from 3.10 to 4.3 close the connection with 541 over headers that they can't parse, with 505 over a content
    header of another class, and the channel with 406 over properties that they don't accept. By AMQP 1.0 those of 4.x
    end the session with 503 over annotations, and with 403 over a user id: any other 403 is a missing permission. When
    a broker shuts down, the code is 320.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionClosedError):
            return cause.code in _OVER_WHAT_WAS_READ
        if isinstance(cause, ChannelClosedError):
            return is_over_user_id(cause.code, cause.what) or cause.code in _OVER_A_MESSAGE
        cause = cause.__cause__
    return False


def _not_amqp(begin: bytes) -> str:
    if begin.startswith(_TLS_ALERT):
        return "this is a TLS port: write amqps://"
    if begin.startswith(b"AMQP"):
        return "the server doesn't speak AMQP 0-9-1 as RabbitMQ does: check address and port"
    return f"not AMQP: the response begins with {begin!r}: check the port"


def _refused(code: int, text: str, terms: Terms, mechanism: Mechanism | None) -> BrokerError:
    """The error for a refusal while the connection is being opened."""
    where, user, vhost = terms.where, terms.user, terms.vhost
    about = Failure(FailureKind.NO_VHOST, user=user, vhost=vhost, object=vhost, object_type="vhost")
    refused = Failure(FailureKind.LOGIN, user=user, vhost=vhost)
    permanent = partial(PermanentError, where=where)
    match opening_refusal(code, text, user=user, vhost=vhost):
        case OpeningRefusal.NO_VHOST:
            return permanent(f"vhost {vhost!r} does not exist: create it there or fix the path of the URI", facts=about)
        case OpeningRefusal.NO_ACCESS:
            who = user_of(text) or user  # a certificate's isn't that of the URI
            denied = replace(about, kind=FailureKind.PERMISSION, user=who)
            what = f"user {who!r} may not access vhost {vhost!r}"
            return NoAccessError(f"{what}: give it permissions there", where=where, facts=denied)
        case OpeningRefusal.LIMIT:
            return TransientError(f"a limit on connections is reached: {text}", where=where)
        case OpeningRefusal.ONLY_LOCAL:
            what = f"user {user!r} may log in only from the broker's own host"
            return permanent(f"{what}: use another user", facts=refused)
        case OpeningRefusal.LOGIN if mechanism is Mechanism.EXTERNAL:
            advice = "check that the certificate's name is a user there (ssl_cert_login_from)"
            return permanent(f"login by client certificate refused: {advice}", facts=replace(refused, user=""))
        case OpeningRefusal.LOGIN:
            return permanent(f"login refused for user {user!r}: check user and password in its URI", facts=refused)
    return TransientError(f"the broker closed the connection ({code}): {text}", where=where)


def update_failed(error: BrokerError, *, where: str, user: str) -> BrokerError:
    """The error if a broker has not taken another password or token on an open connection."""
    refused = error.__cause__
    if isinstance(refused, ConnectionClosedError) and refused.code == NOT_ALLOWED:
        return PermanentError(
            f"the new password or token of user {user!r} was refused: check that it is valid and issued for "
            f"the same user: {refused.what}",
            where=where,
            facts=Failure(FailureKind.LOGIN, user=user),
        )
    if isinstance(error, UnansweredError):
        what = f"{error.what}: a broker with an alarm reads nothing; the former password or token stays in use"
        return TransientError(what, where=where)
    return error


def lost(error: BrokerError, *, where: str) -> BrokerError:
    """The error with which an open connection ended."""
    match error:
        case ConnectionClosedError():
            what = f"the broker closed the connection ({error.code}): {error.what}"
        case HeartbeatMissedError():
            what = f"heartbeats missed: {error}"
        case EndOfStreamError() if error.__cause__ is not None:
            what = explain(error.__cause__, where=where).what  # it passes: it worked until now, TLS too
        case EndOfStreamError():
            what = f"connection lost: {error}"
        case _:
            what = error.what
    return TransientError(what, where=where, cause=error)
