"""The changes that a kind of link makes to messages, and where they go: the exchange and routing key that a message was
published with before it came here, and those that it is published with next. Around them the rules of operators:
headers that are set, and headers that are removed.

What a rule sets is added as prepared bytes, as the kind's own headers are. Only a message that may have one of the
headers that are set or removed is looked into, see `remaining`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.wire.properties import USER_ID, Properties
from agent.amqp.wire.tables import encode_value, short_string
from agent.core.fields import Table
from agent.core.rules.headers import prefix_of


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


def with_rules(rewriter: Rewriter, set_headers: Table, remove_headers: Sequence[str]) -> Rewriter:
    """The rewriter with these rules; itself without any."""
    return HeaderRules(rewriter, set_headers, remove_headers) if set_headers or remove_headers else rewriter


class HeaderRules:
    """Removes headers, then sets some before all that a message has, and leaves the rest to a kind's rewriter, whose
    own headers no rule may touch."""

    def __init__(self, kind: Rewriter, set_headers: Table, remove_headers: Sequence[str]) -> None:
        """Names that end with * are the beginnings of names."""
        prefixes = [prefix for each in remove_headers if (prefix := prefix_of(each)) is not None]
        removed = [each for each in remove_headers if prefix_of(each) is None]
        names = dict.fromkeys([*(name for name, _ in set_headers), *removed])
        self.marks = (*kind.marks, *map(short_string, names), *(short_string(prefix)[1:] for prefix in prefixes))
        self.changes = kind.changes
        self.varies = kind.varies
        self._kind = kind
        self._marks_of_kind = kind.marks
        self._names = Names(*names, prefixes=prefixes)
        self._set = b"".join(short_string(name) + encode_value(value) for name, value in set_headers)

    @property
    def version(self) -> int:
        return self._kind.version

    def entries(self, delivery: Delivery) -> bytes:
        return self._kind.entries(delivery) + self._set

    def rewrite(self, headers: bytes, delivery: Delivery) -> bytes | str:
        remaining = header_table.without(headers, self._names)
        return self._kind.rewrite(header_table.with_first(remaining, self._set), delivery)

    def remaining(self, headers: bytes) -> bytes | None:
        """The table that remains of a message's own once the rules have removed theirs, to have `entries` put first;
        None if the kind has to rewrite it. Raises CodecError as `rewrite` does."""
        remaining = header_table.without(headers, self._names)
        return None if any(remaining.find(mark) >= 0 for mark in self._marks_of_kind) else remaining
