"""The exchange and routing key that a message was published with before it came here, and those that it is published
with next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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
