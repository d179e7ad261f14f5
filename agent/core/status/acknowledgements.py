"""Acknowledgements: a known cause of trouble comes behind others until it is over, or grows.

Why: docs/decisions/0050-acknowledged-by-link.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from agent.core.links.lifecycle import Pause, read_time

LONGEST: Final = 366 * 86_400.0  # seconds
MOST_REMEMBERED: Final = 300  # of one lease: with the longest texts, and as many pauses, its message stays small enough


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The acknowledgement of the trouble of one link, so it goes where the link goes; a cause has the one that all its
    links have. Without `until` only the end of the trouble ends it."""

    side: str
    trouble: str
    by: str = ""
    at: float = 0.0
    reason: str = ""
    until: float | None = None

    def is_over(self, now: float) -> bool:
        return self.until is not None and now >= self.until

    @property
    def text(self) -> str:
        """`acknowledged by ann@ops at 2026-11-23 08:15 UTC: disk is ordered, until 2026-11-23 10:15 UTC`."""
        why = f": {self.reason}" if self.reason else ""
        until = "" if self.until is None else f", until {_utc(self.until)}"
        return f"acknowledged by {self.by or 'somebody'} at {_utc(self.at)}{why}{until}"


def acknowledged(
    side: str, trouble: str, *, by: object, at: object, reason: object, until: object = None
) -> Acknowledgement:
    """An acknowledgement from values of any kind, since texts come from clients and from the broker; unusable ones are
    left out."""
    known = Pause.given(by, at, reason)
    return Acknowledgement(side, trouble, known.by, known.at, known.reason, read_time(until))


def from_value(value: object) -> Acknowledgement | None:
    """The acknowledgement in a value; None if it isn't one: a trouble that is not known to be acknowledged is news."""
    given: Mapping[str, Any] = value if isinstance(value, dict) else {}
    side, trouble = given.get("side"), given.get("trouble")
    if not (isinstance(side, str) and isinstance(trouble, str)):
        return None
    about = {key: given.get(key) for key in ("by", "at", "reason", "until")}
    return acknowledged(side, trouble, **about)


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
