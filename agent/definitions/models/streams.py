"""Streams as the sources of shovels: where one begins, and what a stream can't have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agent.core import fields
from agent.core.model import STREAM_OFFSET
from agent.definitions.document.findings import Spot

NAMED = frozenset({"first", "last", "next"})
_AGO = re.compile("[1-9][0-9]{0,8}[YMDhms]")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)")


def check_stream(raw: Mapping[str, Any], spot: Spot) -> None:
    """Report what a shovel from a stream can't have. Brokers close the connection over some of it, and with it all
    other links that share the connection."""
    consumed, declared = _mapping(raw.get("src-consumer-args")), _mapping(raw.get("src-queue-args"))
    has_offset = STREAM_OFFSET in consumed
    if has_offset and "src-exchange" in raw:
        spot.error(f"{STREAM_OFFSET} needs src-queue, a stream", "src-consumer-args", key=True)
    if has_offset and not _is_offset(consumed[STREAM_OFFSET]):
        spot.error(
            f"{STREAM_OFFSET}: expected first, last, next, an offset, a time such as 2026-11-26T08:00:00Z, or how long "
            "ago, such as 12h",
            "src-consumer-args",
        )
    if not has_offset and declared.get("x-queue-type") != "stream":
        return
    if raw.get("ack-mode") == "no-ack" and raw.get("src-protocol") != "local":  # the plugin's local shovel has it
        spot.error("a stream is read with acknowledgements: use on-confirm or on-publish", "ack-mode")
    if raw.get("src-protocol") == "amqp10":
        spot.warn(
            "the place in a stream that is read by amqp10 isn't remembered: with each connection it is copied again "
            f"from {STREAM_OFFSET} on; read it by amqp091",
            "src-consumer-args",
            key=True,
        )
    if "lag-critical" in raw:
        spot.warn("lag-critical does nothing for a stream: how much waits in one isn't known", "lag-critical", key=True)
    for name in ("src-delete-after", "delete-after"):
        if raw.get(name, "never") != "never":
            message = "messages of a stream can't be counted, as it takes none back: use src-delete-after-duration"
            spot.error(message, name)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_offset(value: object) -> bool:
    if isinstance(value, str):
        return value in NAMED or bool(_AGO.fullmatch(value)) or _seconds(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _seconds(text: str) -> int | None:
    """Seconds since 1970; None if this is no time with its zone."""
    if not _TIME.fullmatch(text):
        return None
    try:
        found = int(datetime.fromisoformat(text.upper()).timestamp())
    except (ValueError, OverflowError):
        return None
    return found if found >= 0 else None


def with_time(arguments: fields.Table) -> fields.Table:
    """The consumer's arguments with a time to begin at as AMQP has it; JSON has none."""
    offset = fields.get(arguments, STREAM_OFFSET)
    seconds = _seconds(offset.value) if offset is not None and offset.tag == "S" else None
    if seconds is None:
        return arguments
    return (*fields.without(arguments, STREAM_OFFSET), (STREAM_OFFSET, fields.Field("T", seconds)))
