"""How a connection ends, when nobody here ended it."""

from __future__ import annotations

from typing import Final

from agent.errors import BrokerError

_LONGEST_TEXT: Final = 300


def one_line(text: str) -> str:
    """A peer's own words as messages, logs and the API may quote them: bounded, and of visible characters."""
    text = " ".join(text[: 4 * _LONGEST_TEXT].split())[:_LONGEST_TEXT]
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


class ConnectionClosedError(BrokerError):
    """The broker closed the connection; `code` is AMQP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text or f"code {code}, without a reason")
        self.code = code


class NotAmqpError(BrokerError):
    """What answers speaks something else; `begin` is what it said first."""

    def __init__(self, begin: bytes) -> None:
        super().__init__("not AMQP")  # a traceback may quote it, and the peer may know our password
        self.begin = begin


class HeartbeatMissedError(BrokerError):
    """Nothing was heard for twice the heartbeat."""


class EndOfStreamError(BrokerError):
    """The other side closed the socket without a word."""
