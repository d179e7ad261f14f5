"""The pause of a link, with its author, time and reason: the form that is stored with the lease of the link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent.core.links.lifecycle import Pause
from agent.core.text.printable import printable

MOST: Final = 300  # characters of what somebody writes
LONG: Final = 24 * 3600.0  # seconds from when on a pause was probably forgotten
LAST: Final = 1e11  # a later time is none


def paused(by: object, at: object, reason: object) -> Pause:
    """A pause from values of any kind, since texts come from clients and from the broker; what is unusable is
    left out."""
    is_time = isinstance(at, int | float) and not isinstance(at, bool) and 0 <= at < LAST
    return Pause(_text(by), float(at) if is_time and isinstance(at, int | float) else 0.0, _text(reason))


def _text(value: object) -> str:
    return printable(value[:MOST]).strip()[:MOST] if isinstance(value, str) else ""


def from_value(value: object) -> Pause:
    """A pause from a stored value. The link is paused whatever the value holds, since anybody may have written it."""
    given: Mapping[str, Any] = value if isinstance(value, dict) else {}
    return paused(given.get("by"), given.get("at"), given.get("reason"))
