"""The delay before the next attempt.

Why: docs/decisions/0041-backoff-in-core.md
"""

from __future__ import annotations

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
