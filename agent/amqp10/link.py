"""The interfaces of a session for a link of AMQP 1.0, and of a connection for a session; and numbers that are done."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
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

    @property
    def is_full(self) -> bool:
        """True if the socket takes nothing."""

    def send(self, data: bytes | memoryview) -> None:
        """Write frames to the peer, with all else that this turn brings."""

    def feed(self, data: bytes | memoryview) -> None:
        """Give frames to the data path."""

    def waits_for_credit(self, session: object, size: int) -> None:
        """Note that `size` bytes of a session's messages wait until the peer takes more."""

    def later(self, step: Callable[[], None]) -> None:
        """Call `step` after the time in which a peer gives credit, if it ever does."""

    def credited(self) -> None:
        """Note that the peer has given credit."""

    def lost(self, number: int, reasons: Iterable[str]) -> None:
        """Count what a message of a channel loses by being converted."""

    def rejected(self, number: int, text: str) -> None:
        """Note why the peer has rejected a message of a channel."""

    def unapplied(self, number: int, names: tuple[str, ...]) -> None:
        """Note which arguments of a channel's consumer the peer doesn't apply."""

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
        """True if the peer takes a transfer, and so does the socket."""

    @property
    def is_shut(self) -> bool:
        """True if the peer says that it takes no transfer."""

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

    def rejected(self, text: str) -> None:
        """Note why the peer has rejected a message."""

    def unapplied(self, names: tuple[str, ...]) -> None:
        """Note which arguments of the consumer the peer doesn't apply."""


class DoneNumbers:
    """Numbers from 1 on that are done, as runs: one that stays open for hours lets millions pass behind it."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._runs = [(0, 0)]

    @property
    def up_to(self) -> int:
        """The largest number below which none is open."""
        return self._runs[0][1]

    def __contains__(self, number: int) -> bool:
        first, _ = self._runs[min(self._at(number), len(self._runs) - 1)]
        return first <= number <= self._runs[-1][1]

    def add(self, first: int, last: int) -> None:
        """Add the numbers from the first to the last; some may be done already."""
        runs = self._runs
        begin = end = self._at(first - 1)
        while end < len(runs) and runs[end][0] <= last + 1:
            self.count -= runs[end][1] - max(runs[end][0], 1) + 1
            first, last, end = min(first, runs[end][0]), max(last, runs[end][1]), end + 1
        self.count += last - max(first, 1) + 1
        runs[begin:end] = [(first, last)]

    def _at(self, number: int) -> int:
        """The place of the first run that reaches to the number."""
        return bisect_left(self._runs, number, key=lambda run: run[1])
