"""What an exchange link adds to every message: its entry in `x-received-from`."""

from __future__ import annotations

import struct
from typing import Final

from agent.amqp.wire.tables import decode_table, encode_table, encode_value, short_string
from agent.core import fields, hops
from agent.core.hops import RECEIVED_FROM, Site, Verdict

_U32: Final = struct.Struct(">I")
_DEPTH: Final = 3  # headers, the hops in one of them, a hop's fields
_MAX_KNOWN: Final = 1_000


class Stamp:
    """Judges and marks messages on their way from `upstream` to an exchange of `downstream`."""

    def __init__(
        self, uri: str, exchange: str, *, upstream: Site, downstream: Site, max_hops: int, trust_user_id: bool
    ) -> None:
        self.mark = short_string(RECEIVED_FROM)
        self.trusts_user_id = trust_user_id
        self._downstream = downstream
        self._max_hops = max_hops
        self._entries = tuple(
            hops.received_entry(uri, exchange, redelivered=redelivered, upstream=upstream)
            for redelivered in (False, True)
        )
        self._hops = tuple(encode_value(entry) for entry in self._entries)
        self._array = self.mark + b"A"
        self._known: dict[bytes, Verdict] = {}

    def entry(self, *, redelivered: bool) -> bytes:
        """The header as bytes, for a message that has none of it yet."""
        return self.mark + encode_value(fields.array(self._entries[redelivered]))

    def rewrite(self, headers: bytes, *, redelivered: bool) -> bytes | str:
        """The table to publish with, or why the message is dropped; CodecError where it is no table."""
        if headers.startswith(self._array, 4):
            return self._continued(headers, redelivered=redelivered)
        table, _ = decode_table(headers, depth=_DEPTH)
        verdict = hops.judge(table, self._max_hops, self._downstream)
        if verdict is not Verdict.FORWARD:
            return verdict.value
        return encode_table(hops.with_entry(table, RECEIVED_FROM, self._entries[redelivered]))

    def _continued(self, headers: bytes, *, redelivered: bool) -> bytes | str:
        """The same for what has come through other hops: they put the header first, and few ways lead here."""
        begin = 4 + len(self._array)
        (length,) = _U32.unpack_from(headers, begin)
        past = headers[4 : begin + 4 + length]
        verdict = self._known.get(past) or self._judge(past)
        if verdict is not Verdict.FORWARD:
            return verdict.value
        hop = self._hops[redelivered]
        size = int.from_bytes(headers[:4], "big") + len(hop)
        return b"".join([_U32.pack(size), self._array, _U32.pack(length + len(hop)), hop, headers[begin + 4 :]])

    def _judge(self, past: bytes) -> Verdict:
        table, _ = decode_table(_U32.pack(len(past)) + past, depth=_DEPTH)
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        verdict = self._known[past] = hops.judge(table, self._max_hops, self._downstream)
        return verdict
