"""What a link of AMQP 1.0 uses of its session, and a session of its connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from agent.amqp.wire.methods import Method
from agent.amqp10.conditions import PeerRefusal
from agent.amqp10.handshake import PeerLimits


class SessionOwner(Protocol):
    """The connection."""

    limits: PeerLimits
    largest_frame: int  # that the peer takes
    name: str
    user: bytes  # that it knows the agent by; empty if a certificate or nothing says who that is

    def send(self, data: bytes | memoryview) -> None:
        """Write frames to the peer, with all else that this turn brings."""

    def feed(self, data: bytes | memoryview) -> None:
        """Give frames to the data path."""

    def waits_for_credit(self, session: object, size: int) -> None:
        """Note that `size` bytes of a session's messages wait until the peer takes more."""

    def credited(self) -> None:
        """Note that the peer has given credit."""

    def lost(self, number: int, reasons: Iterable[str]) -> None:
        """Count what a message of a channel loses by being converted."""

    def shown(self, text: str) -> str:
        """A peer's text, without secrets, and no longer than 0-9-1 allows."""

    def forget(self, session: LinkSession) -> None:
        """Both sides have ended the session."""


class LinkSession(Protocol):
    """The session; `number` is that of its channel."""

    number: int
    owner: SessionOwner
    is_over: bool  # nothing more comes or goes but its end

    @property
    def may_transfer(self) -> bool:
        """True if the peer takes a transfer."""

    def send(self, performative: bytes) -> None:
        """Send a performative to the peer."""

    def transfer(self, performative: bytes, payload: memoryview) -> None: ...

    def flow(self, **values: Any) -> None:
        """Tell the peer the state of the session, and with `values` that of the link."""

    def say(self, method: Method, **values: Any) -> None:
        """Say a method to the data path."""

    def refuse(self, refusal: PeerRefusal) -> None:
        """Close the channel for a reason."""

    def lost(self, reasons: Iterable[str]) -> None:
        """Count what a message loses by being converted."""
