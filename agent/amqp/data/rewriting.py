"""The changes that a kind of link makes to messages, and where they go: the exchange and routing key that a message was
published with before it came here, and those that it is published with next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agent.amqp.wire.properties import USER_ID, Properties


class Delivery(NamedTuple):
    """The facts of a delivery besides the message; names are bytes, since a publisher may send any."""

    exchange: bytes
    routing_key: bytes
    redelivered: bool


@dataclass(frozen=True, slots=True)
class Destination:
    """The exchange and routing key to publish to; None keeps those of each delivery."""

    exchange: str | None = None
    routing_key: str | None = None
    mandatory: bool = True


def read_address(data: bytes, *, redelivered: bool) -> Delivery:
    """Read bytes that are known to be an address."""
    key = 1 + data[0]
    return Delivery(data[1:key], data[key + 1 :], redelivered)


@dataclass(frozen=True, slots=True)
class PropertyChanges:
    """The changes to the properties other than the headers.

    `values` (flag and bytes) replace what a message has. `users` are the user ids that a message may keep, since a
    broker refuses any that isn't the connected user; None lets all of them pass. A user id among `values` takes
    precedence.
    """

    values: tuple[tuple[int, bytes], ...] = ()
    users: frozenset[bytes] | None = None

    def apply(self, properties: Properties) -> Properties:
        if self.users is not None and not self._may_keep_user(properties):
            properties = properties.lacking(USER_ID)
        return properties.replaced(self.values) if self.values else properties

    def _may_keep_user(self, properties: Properties) -> bool:
        user = properties.get(USER_ID)
        return user is None or (self.users is not None and user[1:] in self.users)


class Rewriter(Protocol):
    """The changes that a kind of link makes to each message. Usually, only its `entries` are added to the headers."""

    @property
    def marks(self) -> tuple[bytes, ...]:
        """The names of headers, each with its length in front: if one is found in the table, `rewrite` decides."""

    @property
    def changes(self) -> PropertyChanges:
        """The changes to the other properties."""

    @property
    def varies(self) -> bool:
        """True if `entries` depend on the delivery's exchange or routing key."""

    @property
    def version(self) -> int:
        """A number that changes once `entries` would return others, as with a time; it is read with every read from the
        source."""

    def entries(self, delivery: Delivery) -> bytes:
        """Header entries (name, tag, value each) to put first if the table has none of the marks; may be empty."""

    def rewrite(self, headers: bytes, delivery: Delivery) -> bytes | str:
        """The headers (a table with its length) to publish with, or the reason why the message is dropped."""


class Chooser(Protocol):
    """Decides of each message where it goes, and whether it goes at all."""

    def choose(self, properties: bytes, delivery: Delivery, size: int, /) -> bytes | str | None:
        """The address to publish the message to (exchange and routing key with their lengths), or the reason why it
        stays at its source. None if that isn't known yet: then the connection to the source is held until it is, and
        the message is asked about again. `properties` begin with their flags, `size` is that of the body."""


def rewritten(rewriter: Rewriter, properties: Properties, delivery: Delivery) -> Properties | str:
    """One message's properties to publish with, or the reason why it is dropped; raise CodecError if they aren't
    valid."""
    properties = rewriter.changes.apply(properties)
    raw = properties.raw_headers
    if not any(raw.find(mark) >= 0 for mark in rewriter.marks):
        entries = rewriter.entries(delivery)
        return properties.with_first_headers(entries) if entries else properties
    found = rewriter.rewrite(raw, delivery)
    return found if isinstance(found, str) else properties.with_raw_headers(found)


class Untouched:
    """A rewriter for links that change nothing in the headers."""

    marks: tuple[bytes, ...] = ()
    varies = False
    version = 0

    def __init__(self, changes: PropertyChanges | None = None) -> None:
        self.changes = changes or PropertyChanges()

    def entries(self, _: Delivery) -> bytes:
        return b""

    def rewrite(self, headers: bytes, _: Delivery) -> bytes | str:
        return headers
