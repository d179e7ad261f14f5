"""The entry that an exchange link adds to every message's `x-received-from`.

Anyone may forge the header, and make it as large as a frame. So nothing of it is decoded: tables are walked by their
lengths, and only a hop's cluster and vhost are compared, as bytes.

Why: docs/decisions/0004-headers-as-bytes.md
"""

from __future__ import annotations

from typing import Final

from agent.amqp.data.header_table import Names, array, keep_invalid, skip_value, table_of
from agent.amqp.data.rewriting import Delivery, PropertyChanges
from agent.amqp.wire.frames import U32
from agent.amqp.wire.tables import encode_value, long_string, short_string
from agent.core import fields
from agent.core.rules import hops
from agent.core.rules.hops import RECEIVED_FROM, Site, Verdict

_ARRAY: Final = ord("A")
_TABLE: Final = ord("F")
_RECEIVED: Final = Names(RECEIVED_FROM)
_SITE: Final = Names("cluster-name", "vhost")
_CLUSTER: Final = short_string("cluster-name")
_LONGEST_KNOWN: Final = 1024  # few ways lead here, and a hop takes some 150 bytes
_MOST_KNOWN: Final = 64 * 1024
_OF_AN_ENTRY: Final = 150  # bytes that Python takes for an entry besides its key


class ReceivedFromHeader:
    """Judges and marks messages on their way from `upstream` to an exchange of `downstream`."""

    __slots__ = (
        "_array", "_cluster", "_entries", "_hops", "_known", "_known_bytes", "_max_hops", "_vhost", "changes",
        "marks", "varies", "version",
    )  # fmt: skip

    def __init__(
        self, uri: str, exchange: str, *, upstream: Site, downstream: Site, max_hops: int, trust_user_id: bool
    ) -> None:
        mark = short_string(RECEIVED_FROM)
        self.marks = (mark,)
        self.changes = PropertyChanges(users=None if trust_user_id else frozenset())
        self.varies = False
        self.version = 0
        self._max_hops = max_hops
        self._cluster = None if downstream.cluster is None else b"S" + long_string(downstream.cluster)
        self._vhost = b"S" + long_string(downstream.vhost)
        entries = tuple(
            hops.received_entry(uri, exchange, redelivered=redelivered, upstream=upstream)
            for redelivered in (False, True)
        )
        self._hops = tuple(encode_value(entry) for entry in entries)
        self._entries = tuple(mark + encode_value(fields.array(entry)) for entry in entries)
        self._array = mark + b"A"
        self._known: dict[bytes, Verdict] = {}
        self._known_bytes = 0

    @property
    def kept(self) -> int:
        """About how many bytes of memory the verdicts take that are kept."""
        return self._known_bytes

    def entries(self, delivery: Delivery) -> bytes:
        """The header as bytes, for a message that has none of it yet."""
        return self._entries[delivery.redelivered]

    def rewrite(self, headers: bytes, delivery: Delivery) -> bytes | str:
        """The table to publish with, or the reason why the message is dropped; raise CodecError if what has to be read
        is no table.

        Hops put the header first, so it is looked for there first.
        """
        hop = self._hops[delivery.redelivered]
        if headers.startswith(self._array, 4):
            value = 4 + len(self._array) - 1
            after = skip_value(headers, value, len(headers))
        else:
            found = _RECEIVED.find(headers, 4, len(headers))
            if found is None:
                return table_of(self._array, U32.pack(len(hop)), hop, headers[4:])
            _, value, after = found
            if headers[value] != _ARRAY:
                return keep_invalid(table_of(headers[4:value], array(hop), headers[after:]), headers[value:after])
        past = headers[value + 5 : after]
        verdict = self._known.get(past) or self._judge(past)
        if verdict is not Verdict.FORWARD:
            return verdict.value
        return table_of(headers[4 : value + 1], U32.pack(len(past) + len(hop)), hop, headers[value + 5 :])

    def _judge(self, past: bytes) -> Verdict:
        """The verdict on a message with the hops `past`, the entries of its array; no more of them are looked at than
        the message may have."""
        items: list[tuple[int, int]] = []
        at = 0
        while at < len(past) and len(items) < self._max_hops:
            after = skip_value(past, at, len(past))
            items.append((at, after))
            at = after
        if len(items) >= self._max_hops:
            verdict = Verdict.MAX_HOPS
        else:
            has_visited = any(past[at] == _TABLE and self._is_here(past, at + 5, after) for at, after in items)
            verdict = Verdict.VISITED if has_visited else Verdict.FORWARD
        self._learn(past, verdict)
        return verdict

    def _is_here(self, hop: bytes, at: int, end: int) -> bool:
        """True if an entry names the downstream; of two fields of one name the first counts."""
        if self._cluster is None:
            return False
        wanted = {True: self._cluster, False: self._vhost}
        while wanted and (found := _SITE.find(hop, at, end)) is not None:
            begin, value, at = found
            expected = wanted.pop(hop.startswith(_CLUSTER, begin), None)
            if expected is not None and hop[value:at] != expected:
                return False
        return not wanted

    def _learn(self, past: bytes, verdict: Verdict) -> None:
        size = len(past) + _OF_AN_ENTRY
        if len(past) > _LONGEST_KNOWN:
            return
        if self._known_bytes + size > _MOST_KNOWN:
            self._known.clear()
            self._known_bytes = 0
        self._known[past] = verdict
        self._known_bytes += size
