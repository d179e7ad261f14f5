"""How long a link waits: before its next attempt, and before its objects upstream are removed once nothing defines it.

Why: docs/decisions/0041-backoff-in-core.md, docs/decisions/0030-removal-waits.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_STEP = 0.1
LEAST_UPPER = 0.5
LEAST_STEADY = 1.0
SLOW_RETRY = 20.0
"""With the chance added 25 s: a permission that was given back is found within half a minute, without a person."""


def delay(attempt: int, upper: float, chance: float) -> float:
    """Seconds before this attempt: none before the first, then doubling up to `upper`, of which `chance` in [0, 1)
    takes off up to half, to keep links from retrying simultaneously. An `upper` near zero would cause hundreds of
    logins per second, so it counts as `LEAST_UPPER`."""
    if attempt <= 1:
        return 0.0
    ceiling = min(max(upper, LEAST_UPPER), FIRST_STEP * 2.0 ** min(attempt - 2, 62))
    return ceiling * (0.5 + 0.5 * chance)


def slow_delay(upper: float, chance: float) -> float:
    """Seconds before the next attempt after a failure that needs a change of configuration: it is tried rarely, but not
    never."""
    return max(SLOW_RETRY, upper) * (0.75 + 0.5 * chance)


def is_steady(ran: float, upper: float) -> bool:
    """True if something ran for long enough to be tried again at once when it ends."""
    return ran > max(upper, LEAST_STEADY)


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
