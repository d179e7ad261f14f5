"""What is published around messages, prepared once for all that were published with one exchange and routing key."""

from __future__ import annotations

import struct
from typing import Final

from agent.amqp.data.delivery import Destination, read_address
from agent.amqp.data.rewriting import Rewriter
from agent.amqp.wire import frames, methods
from agent.amqp.wire.tables import short_string

PUBLISH: Final = 4
"""Where the publish is in what is prepared. Before it: the header entries of a message that was not redelivered and of
one that was, and the same as whole tables, for a message that has none."""

_MOST: Final = 256 * 1024
_OF_AN_ENTRY: Final = 350  # bytes that Python takes for an entry besides what is in it
_U32: Final = struct.Struct(">I")
_BEFORE_EXCHANGE: Final = 6  # bytes of a publish


class Prepared:
    """Kept by address, exchange and routing key with their lengths: addresses repeat."""

    def __init__(self, rewriter: Rewriter, destination: Destination, *, number: int) -> None:
        """`number` is the channel's that is published on."""
        self.known: dict[bytes, tuple[bytes, ...]] = {}
        self._rewriter = rewriter
        self._number = number
        plain = methods.BASIC_PUBLISH.encode(mandatory=destination.mandatory)
        exchange, key = destination.exchange, destination.routing_key
        self._head, self._flags = plain[:_BEFORE_EXCHANGE], plain[-1:]
        self._has_exchange = exchange is not None
        if exchange is not None:
            self._head += short_string(exchange)
        self._key = b"" if key is None else short_string(key)
        self._entries: tuple[bytes, ...] = ()
        self._varies = rewriter.varies
        self._version = rewriter.version
        self._size = 0

    @property
    def kept(self) -> int:
        """About how many bytes of memory they take."""
        return self._size

    def renew(self) -> None:
        """Forgets what the rewriter would write otherwise by now."""
        version = self._rewriter.version
        if version != self._version:
            self._version, self._entries = version, ()
            self._forget()

    def add(self, address: bytes) -> tuple[bytes, ...]:
        """Empty where the bytes are no address: two names with their lengths, and nothing else."""
        end = len(address)
        key = 1 + address[0] if address else end
        if key >= end or key + 1 + address[key] != end:
            return ()
        head = self._head if self._has_exchange else self._head + address[:key]
        publish = frames.frame(frames.METHOD, self._number, head + (self._key or address[key:]) + self._flags)
        size = end + len(publish) + _OF_AN_ENTRY
        if self._varies or not self._entries:
            self._entries = self._entries_for(address)
            size += sum(map(len, self._entries))
        if self._size + size > _MOST:
            self._forget()
        made = self.known[address] = (*self._entries, publish)
        self._size += size
        return made

    def _entries_for(self, address: bytes) -> tuple[bytes, ...]:
        entries = [
            self._rewriter.entries(read_address(address, redelivered=redelivered)) for redelivered in (False, True)
        ]
        return *entries, *(_U32.pack(len(each)) + each if each else b"" for each in entries)

    def _forget(self) -> None:
        self.known.clear()
        self._size = 0
