"""Where a message was published before it came here, and where it is published next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Delivery(NamedTuple):
    """What a delivery holds besides the message; names are bytes, since a publisher may send any."""

    exchange: bytes
    routing_key: bytes
    redelivered: bool


@dataclass(frozen=True, slots=True)
class Destination:
    """What messages are published to. None is each delivery's own exchange or routing key."""

    exchange: str | None = None
    routing_key: str | None = None
    mandatory: bool = True


def read_address(data: bytes, *, redelivered: bool) -> Delivery:
    """Of bytes that are an address."""
    key = 1 + data[0]
    return Delivery(data[1:key], data[key + 1 :], redelivered)
