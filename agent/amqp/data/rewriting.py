"""What a kind of link changes of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent.amqp.data.delivery import Delivery
from agent.amqp.wire.properties import USER_ID, Properties


@dataclass(frozen=True, slots=True)
class PropertyChanges:
    """What becomes of the properties other than the headers.

    `values` (flag and bytes) replace what a message has. `users` are the user ids that a message may keep, since a
    broker refuses any that isn't the connected user; None lets all of them pass. A user id among `values` counts more.
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
    """What a kind of link does to each message. The usual message gets its `entries` and nothing else."""

    @property
    def marks(self) -> tuple[bytes, ...]:
        """Headers' names, each with its length in front: where one is found in the table, `rewrite` decides."""

    @property
    def changes(self) -> PropertyChanges:
        """What becomes of the other properties."""

    @property
    def varies(self) -> bool:
        """Whether `entries` depend on the delivery's exchange or routing key."""

    @property
    def version(self) -> int:
        """Another one once `entries` would answer otherwise, as a time does; asked for with every read."""

    def entries(self, delivery: Delivery) -> bytes:
        """Header entries (name, tag, value each) to put first where the table has none of the marks; may be empty."""

    def rewrite(self, headers: bytes, delivery: Delivery) -> bytes | str:
        """The headers (a table with its length) to publish with, or why the message is dropped."""


def rewritten(rewriter: Rewriter, properties: Properties, delivery: Delivery) -> Properties | str:
    """One message's properties to publish with, or why it is dropped; CodecError where they make no sense."""
    properties = rewriter.changes.apply(properties)
    raw = properties.raw_headers
    if not any(raw.find(mark) >= 0 for mark in rewriter.marks):
        entries = rewriter.entries(delivery)
        return properties.with_first_headers(entries) if entries else properties
    found = rewriter.rewrite(raw, delivery)
    return found if isinstance(found, str) else properties.with_raw_headers(found)


class Untouched:
    """A rewriter for links that change nothing of the headers."""

    marks: tuple[bytes, ...] = ()
    varies = False
    version = 0

    def __init__(self, changes: PropertyChanges | None = None) -> None:
        self.changes = changes or PropertyChanges()

    def entries(self, _: Delivery) -> bytes:
        return b""

    def rewrite(self, headers: bytes, _: Delivery) -> bytes | str:
        return headers
