"""The changes of a queue link to every message: its entry in `x-received-from`, the original exchange and routing key,
and `CC`.

Anyone may forge the headers, and make them as large as a frame. So tables are walked by their lengths, and only entries
that may be the link's own are looked into.

Why: docs/decisions/0044-messages-to-and-fro.md
"""

from __future__ import annotations

import struct
from typing import Final

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names, array, keep_invalid, skip_value, table_of
from agent.amqp.data.rewriting import Delivery, PropertyChanges
from agent.amqp.wire.tables import encode_value, short_string
from agent.core import fields
from agent.core.rules.headers import ORIGINAL_CC, ORIGINAL_EXCHANGE, ORIGINAL_KEY
from agent.core.rules.hops import RECEIVED_FROM

_ORIGINALS: Final = Names(ORIGINAL_EXCHANGE, ORIGINAL_KEY)
_CC: Final = Names("CC")
_ORIGINAL_CC: Final = Names(ORIGINAL_CC)
_RECEIVED: Final = Names(RECEIVED_FROM)
_URI: Final = Names("uri")
_QUEUE: Final = Names("queue")
_COUNT: Final = Names("visit-count")
_ARRAY: Final = ord("A")
_TABLE: Final = ord("F")
_MOST: Final = 2**63 - 1
_MOST_ENTRIES: Final = 256  # each is a link between two queues
_LONGER: Final = 1024  # bytes that an entry may have more than ours
_INTEGERS: Final = {
    ord(tag): struct.Struct(code)
    for tag, code in {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q"}.items()
}


class VisitHeaders:
    """Marks messages on their way to a queue. `most_visits` is the highest count that it has written, `revisited` the
    number of messages that have been here before."""

    marks = (short_string(RECEIVED_FROM), b"x-original-", short_string("CC"))
    varies = True
    version = 0

    def __init__(self, uri: str, queue: str, *, trust_user_id: bool) -> None:
        self.changes = PropertyChanges(users=None if trust_user_id else frozenset())
        self.most_visits = self.revisited = 0
        self._uri = encode_value(fields.text(uri))
        self._queue = encode_value(fields.text(queue))
        self._own = short_string("uri") + self._uri, short_string("queue") + self._queue
        self._longest = sum(map(len, self._own)) + _LONGER

    def entries(self, delivery: Delivery) -> bytes:
        """The header entries for a message that has none of them yet."""
        received = short_string(RECEIVED_FROM) + array(self._entry(1, redelivered=delivery.redelivered))
        return received + _originals(delivery)

    def rewrite(self, headers: bytes, delivery: Delivery) -> bytes | str:
        """The table to publish with; raise CodecError if what has to be read is no table."""
        found = header_table.find(headers, _RECEIVED)
        if found is not None and headers[found.value] == _ARRAY:
            visits, others = self._without_own(headers[found.value + 5 : found.after])
            self.most_visits = max(self.most_visits, visits)
            self.revisited += visits > 1
            received = array(self._entry(visits, redelivered=delivery.redelivered) + others)
            marked = table_of(headers[4 : found.value], received, headers[found.after :])
        elif found is not None:
            rest = table_of(headers[4 : found.begin], headers[found.after :])
            marked = keep_invalid(self._first(rest, delivery), headers[found.value : found.after])
        else:
            marked = self._first(headers, delivery)
        return _without_cc(marked)

    def _first(self, headers: bytes, delivery: Delivery) -> bytes:
        return header_table.with_first(header_table.without(headers, _ORIGINALS), self.entries(delivery))

    def _entry(self, visits: int, *, redelivered: bool) -> bytes:
        entry = table_of(
            *self._own,
            header_table.entry("redelivered", fields.boolean(redelivered)),
            header_table.entry("visit-count", fields.long(visits)),
        )
        return b"F" + entry

    def _without_own(self, items: bytes) -> tuple[int, bytes]:
        """The number of this visit, and the entries without the one of the earlier visits."""
        uri, queue = self._own
        if uri not in items or queue not in items:
            return 1, items
        at = seen = 0
        while at < len(items) and seen < _MOST_ENTRIES:
            after = skip_value(items, at, len(items))
            if items[at] == _TABLE and after - at <= self._longest and self._is_own(entry := items[at + 1 : after]):
                return min(_count(entry) + 1, _MOST), items[:at] + items[after:]
            at, seen = after, seen + 1
        return 1, items

    def _is_own(self, entry: bytes) -> bool:
        is_ours = header_table.value_of(entry, _URI) == self._uri
        return is_ours and header_table.value_of(entry, _QUEUE) == self._queue


def _originals(delivery: Delivery) -> bytes:
    exchange = header_table.text_entry(ORIGINAL_EXCHANGE, delivery.exchange)
    return exchange + header_table.text_entry(ORIGINAL_KEY, delivery.routing_key)


def _without_cc(headers: bytes) -> bytes:
    """The headers with `CC` renamed: the destination's broker would send copies to the queues that are named there."""
    if header_table.find(headers, _CC) is None:
        return headers
    renamed = header_table.renamed(header_table.without(headers, _ORIGINAL_CC), _CC, ORIGINAL_CC)
    return header_table.without(renamed, _CC)


def _count(entry: bytes) -> int:
    """The visit count in an entry, which anyone may forge; 0 if it is no positive number."""
    value = header_table.value_of(entry, _COUNT)
    integer = None if value is None else _INTEGERS.get(value[0])
    if value is None or integer is None:
        return 0
    count: int = integer.unpack(value[1:])[0]
    return max(0, count)
