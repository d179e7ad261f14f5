"""The bytes that are published around messages, prepared once for all that came with one exchange and routing key.

Why: docs/decisions/0003-prepared-by-address.md
"""

from __future__ import annotations

from typing import Final

from agent.amqp.data.probe import may_be_probe
from agent.amqp.data.rewriting import Destination, Rewriter, read_address
from agent.amqp.wire import frames, methods
from agent.amqp.wire.frames import U32
from agent.amqp.wire.tables import short_string

TABLES: Final = slice(2, 4)
PUBLISH: Final = 4
"""The index of the publish frame in what is prepared. Before it: the header entries of a message that was not
redelivered and of one that was, and the same as whole tables, for a message that has no headers."""
ADDRESS: Final = 5
"""The index of the address itself."""

_MOST: Final = 256 * 1024
_OF_AN_ENTRY: Final = 350  # bytes that Python takes for an entry besides what is in it
_BEFORE_EXCHANGE: Final = 6  # bytes of a publish


class Prepared:
    """The prepared bytes by address (exchange and routing key with their lengths); they are kept, as addresses
    repeat."""

    __slots__ = (
        "_entries", "_flags", "_has_exchange", "_head", "_key", "_number", "_rewriter", "_size", "_varies",
        "_version", "fresh", "known",
    )  # fmt: skip

    def __init__(self, rewriter: Rewriter, destination: Destination, *, number: int) -> None:
        """`number` is that of the channel that messages are published on."""
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
        # Bytes of header entries, since whoever publishes with them set it to 0: what is published holds them, even if
        # they are forgotten here.
        self.fresh = 0

    @property
    def kept(self) -> int:
        """About how many bytes of memory the prepared bytes take."""
        return self._size

    def renew(self) -> None:
        """Forget the prepared bytes if the rewriter would write others by now."""
        version = self._rewriter.version
        if version != self._version:
            self._version, self._entries = version, ()
            self._forget()

    def add(self, address: bytes) -> tuple[bytes, ...]:
        """Prepare an address, and keep the result. Empty if the bytes are no address (two names with their lengths, and
        nothing else), or if messages with this address have to be checked one by one."""
        key = _key_of(address)
        if key is None or may_be_probe(address[key + 1 :]):
            return ()
        made = self._made(address, key)
        size = len(address) + len(made[PUBLISH]) + _OF_AN_ENTRY
        if self._varies or not self._size:
            of_entries = sum(map(len, made[:PUBLISH]))
            size += of_entries
            self.fresh += of_entries
        if self._size + size > _MOST:
            self._forget()
        self.known[address] = made
        self._size += size
        return made

    def add_unusual(self, address: bytes) -> tuple[bytes, ...]:
        """Prepare an address for which `add` returns nothing, without keeping it; empty if the bytes are no address."""
        key = _key_of(address)
        return () if key is None else self._made(address, key)

    def _made(self, address: bytes, key: int) -> tuple[bytes, ...]:
        head = self._head if self._has_exchange else self._head + address[:key]
        publish = frames.frame(frames.METHOD, self._number, head + (self._key or address[key:]) + self._flags)
        if self._varies or not self._entries:
            self._entries = self._entries_for(address)
        return *self._entries, publish, address

    def _entries_for(self, address: bytes) -> tuple[bytes, ...]:
        entries = [
            self._rewriter.entries(read_address(address, redelivered=redelivered)) for redelivered in (False, True)
        ]
        return *entries, *(U32.pack(len(each)) + each if each else b"" for each in entries)

    def _forget(self) -> None:
        self.known.clear()
        self._size = 0


def _key_of(address: bytes) -> int | None:
    """The offset of the routing key, with its length; None if the bytes are no address."""
    end = len(address)
    key = 1 + address[0] if address else end
    return None if key >= end or key + 1 + address[key] != end else key
