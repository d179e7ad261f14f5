"""The expiry of an X.509 certificate, from its DER encoding: Python's ssl has it for verified peers only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


def not_after(der: bytes) -> float:
    """Seconds since 1970; raises ValueError if it is not a certificate."""
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
        return _moment(tag, der[at:end].decode("ascii"))
    except IndexError as error:
        raise ValueError("not a complete certificate") from error


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Its tag, and the start and end of its content."""
    tag, length, begin = der[at], der[at + 1], at + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[at + 2 : begin])
    return tag, begin, begin + length


def _moment(tag: int, text: str) -> float:
    if tag == _UTC_TIME:
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
