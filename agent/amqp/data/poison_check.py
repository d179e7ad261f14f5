"""Checks each message of a suspected link completely before it is published; see `core.links.poison_search`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Final

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names, check_table
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import CodecError
from agent.core.links.poison_search import PoisonSearch
from agent.core.rules.quarantine import QuarantineReason

_DELIVERIES: Final = Names("x-delivery-count")  # what a quorum queue adds, and counts up each time
_MOST_ON_THE_WAY: Final = 64


class PoisonCheck:
    """Checks the messages of one flow. `unconfirmed` returns the deliveries that are in flight."""

    def __init__(
        self, poison_search: PoisonSearch, clock: Callable[[], float], unconfirmed: Callable[[], Collection[int]]
    ) -> None:
        self._poison_search = poison_search
        self._clock = clock
        self._unconfirmed = unconfirmed
        self._passed: dict[int, bytes] = {}

    def objection(self, tag: int, publish: bytes, properties: bytes, size: int) -> str:
        """The reason why a delivery must not be published; empty if it may. `properties` begin with their flags."""
        now = self._clock()
        try:
            read = Properties.read(properties)
            if read.flags & HEADERS:
                check_table(read.raw_headers)
        except CodecError:
            self._poison_search.caught(now)
            return QuarantineReason.UNREADABLE
        digest = _digest(publish, read, size)
        if self._poison_search.is_culprit(digest, now):
            self._poison_search.caught(now)
            return QuarantineReason.CLOSES
        if len(self._passed) >= _MOST_ON_THE_WAY:
            self._passed = {tag: self._passed[tag] for tag in self._unconfirmed() if tag in self._passed}
        if len(self._passed) < _MOST_ON_THE_WAY:  # of so many none is alone, and nothing will be known
            self._passed[tag] = digest
        return ""

    @property
    def on_the_way(self) -> list[bytes]:
        """The digests of the messages that are in flight, one for each; empty bytes for a message whose digest isn't
        known."""
        return [self._passed.get(tag, b"") for tag in self._unconfirmed()]

    @property
    def last(self) -> list[bytes]:
        """The digest of the last message, if there was any."""
        return list(self._passed.values())[-1:]


def _digest(publish: bytes, properties: Properties, size: int) -> bytes:
    """The digest by which a message is recognized when it comes again: of its destination, its properties without the
    delivery count, and the size of its body.

    Brokers don't look into a body.
    """
    same = header_table.without(properties.raw_headers, _DELIVERIES)[4:]
    others = (value for flag, value in properties.values if flag != HEADERS)
    flags = properties.flags & ~HEADERS
    parts = (publish, flags.to_bytes(2, "big"), *others, same, size.to_bytes(8, "big"))
    digest = blake2b(digest_size=16)
    for each in parts:
        digest.update(len(each).to_bytes(4, "big") + each)
    return digest.digest()
