"""The time at which the upstream objects of an unwanted link may be removed, and the text for operators until then.

Why: docs/decisions/0030-removal-waits.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONGEST_SHORT: Final = 120.0  # seconds; longer times are shown in minutes and seconds


@dataclass(frozen=True, slots=True)
class CleanupAfter:
    """Seconds for which a link has to be unwanted: if its queue is empty, and while messages wait in it."""

    empty: float = 10.0
    waiting: float = 600.0

    def due_at(self, since: float, messages: int | None) -> float:
        """The time of the removal. `messages` is None if the upstream doesn't answer; this counts as messages that
        wait."""
        return since + (self.empty if messages == 0 else self.waiting)

    @property
    def is_at_once(self) -> bool:
        return self.empty == self.waiting == 0


def announce(left: float, messages: int | None, *, held: bool) -> str:
    """Text on the removal: `left` are the seconds until then; `held`: it doesn't happen as long as definitions can't be
    read."""
    if messages is None:
        found = "the upstream can't be reached to count its messages"
    elif messages == 0:
        found = "it is empty"
    else:
        found = "1 message waits" if messages == 1 else f"{messages:,} messages wait"
    when = "once definitions can be read again" if held and left <= 0 else f"in {duration(max(left, 0.0))}"
    return f"no longer defined; its queue upstream is removed {when} ({found}); define it again to keep it"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < LONGEST_SHORT:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)
