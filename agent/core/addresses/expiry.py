"""The expiry of certificates and tokens."""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


class Peer(StrEnum):
    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"
    MANAGEMENT = "management"


class Credential(StrEnum):
    CLIENT = "client"
    SERVER = "server"
    JWT = "token"


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expiry of one credential, `at` in seconds since 1970; `vhost` and `upstream` are empty if the peer is the
    downstream."""

    peer: Peer
    credential: Credential
    at: float
    vhost: str = ""
    upstream: str = ""


def certificate_expiry(der: bytes) -> float:
    """The expiry of an X.509 certificate, in seconds since 1970, from its DER encoding: Python's ssl has it for
    verified peers only. Raises ValueError if it is not a certificate."""
    try:
        _, at, _ = _element(der, 0)  # certificate
        _, at, _ = _element(der, at)  # the signed part
        tag, _, end = _element(der, at)
        if tag == _VERSION:
            at = end
        for _ in range(3):  # serial number, algorithm, issuer
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at)  # validity
        _, _, at = _element(der, at)  # its begin
        tag, at, end = _element(der, at)
        return _timestamp(tag, der[at:end].decode("ascii"))
    except IndexError as error:
        raise ValueError("not a complete certificate") from error


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of an element, and the start and end of its content."""
    tag, length, begin = der[at], der[at + 1], at + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[at + 2 : begin])
    return tag, begin, begin + length


def _timestamp(tag: int, text: str) -> float:
    if tag == _UTC_TIME:
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def token_expiry(text: str) -> float | None:
    """The expiry of a JSON Web Token that is used as a password, in seconds since 1970; None if it is not a token or
    never expires. It is neither verified nor stored."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    claims = parts[1]
    try:
        found = json.loads(base64.b64decode(claims + "=" * (-len(claims) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return None
    end = found.get("exp") if isinstance(found, dict) else None
    if isinstance(end, bool) or not isinstance(end, int | float) or not 0 <= end < 1e12 or math.isnan(end):
        return None
    return float(end)
