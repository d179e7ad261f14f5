"""Errors that end a connection, other than a close by the agent, and the time until which it may be used."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from agent.errors import BrokerError, Failure, FailureKind, TransientError

_LONGEST_TEXT: Final = 300
STANDSTILL: Final = 1.0
"""Seconds: a timer that is later shows that the agent itself stood still, and others may have noticed."""


def one_line(text: str) -> str:
    """A peer's text, safe to quote in messages, logs and the API: bounded, and with visible characters only."""
    text = " ".join(text[: 4 * _LONGEST_TEXT].split())[:_LONGEST_TEXT]
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


class ConnectionClosedError(BrokerError):
    """The broker closed the connection; `code` is AMQP's."""

    facts = Failure(FailureKind.CLOSED)

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text or f"code {code}, without a reason")
        self.code = code


class NotAmqpError(BrokerError):
    """The server speaks another protocol; `begin` is the beginning of its response."""

    def __init__(self, begin: bytes) -> None:
        super().__init__("not AMQP")  # a traceback may quote it, and the peer may know our password
        self.begin = begin


class StoodStillError(TransientError):
    """The agent did nothing for so long that another one may run the link: no broker is to blame."""

    facts = Failure(FailureKind.STOOD_STILL)

    def __init__(self) -> None:
        super().__init__("the agent stood still for so long that another agent of its group may run the link")


class HeartbeatMissedError(BrokerError):
    """Nothing was received for twice the heartbeat interval."""

    facts = Failure(FailureKind.HEARTBEATS_MISSED)


class EndOfStreamError(BrokerError):
    """The peer closed the socket without a reason."""

    facts = Failure(FailureKind.LOST)


class Permit:
    """Allows the use of connections until a time, for links that another replica takes over from then on. It is checked
    before anything is read or written, since a process that was stopped doesn't know it. All connections that it is
    given to share it."""

    __slots__ = ("on_end", "until")

    def __init__(self) -> None:
        self.until = inf
        self.on_end: Callable[[], BrokerError] | None = None

    def end(self) -> BrokerError:
        """Return the error to end with; called by a connection that finds that its time is up."""
        return StoodStillError() if self.on_end is None else self.on_end()
