"""A message as it came, made from what was published of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.amqp.data.delivery import Delivery, read_address
from agent.amqp.data.held import Publish, Received
from agent.amqp.data.prepared import ADDRESS
from agent.amqp.wire import frames
from agent.amqp.wire.properties import HEADERS, Properties

_PROPERTIES: Final = 12  # bytes before them in a content header
_TABLES: Final = slice(2, 4)  # of what is prepared: those put where a message has no headers
_LENGTH: Final = 4


@dataclass(frozen=True, slots=True)
class Original:
    """`properties` begin with their flags, as received."""

    delivery: Delivery
    properties: bytes
    body: bytes


def original(publish: Publish) -> Original:
    _, header, *parts = _payloads(publish.frames)
    delivery = read_address(publish.prepared[ADDRESS], redelivered=False)
    return Original(delivery, _properties(publish, header[_PROPERTIES:]), b"".join(parts))


def received_headers(publish: Publish) -> bytes:
    """The headers (a table with its length) as they came."""
    _, header, *_ = _payloads(publish.frames)
    return Properties.read(_properties(publish, header[_PROPERTIES:])).raw_headers


def _properties(publish: Publish, written: bytes) -> bytes:
    added = publish.added
    if isinstance(added, Received):
        return added.properties
    if not added:
        return written
    found = Properties.read(written)
    if any(added is table for table in publish.prepared[_TABLES]):
        return found.lacking(HEADERS).write()
    entries = found.raw_headers[_LENGTH + len(added) :]
    return found.with_raw_headers(len(entries).to_bytes(_LENGTH, "big") + entries).write()


def _payloads(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        _, _, size = frames.PREFIX.unpack_from(data, at)
        begin = at + frames.PREFIX.size
        found.append(data[begin : begin + size])
        at += frames.OVERHEAD + size
    return found
