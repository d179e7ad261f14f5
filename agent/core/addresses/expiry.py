"""Certificates and tokens, and when they expire."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Peer(StrEnum):
    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"
    MANAGEMENT = "management"


class What(StrEnum):
    CLIENT = "client"
    SERVER = "server"
    JWT = "token"


@dataclass(frozen=True, slots=True)
class Expiry:
    """`vhost` and `upstream` are empty if the peer is the downstream."""

    peer: Peer
    what: What
    at: float
    vhost: str = ""
    upstream: str = ""
