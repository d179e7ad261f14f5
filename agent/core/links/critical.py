"""How far a link may fall behind before that is critical: `lag-critical`."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.links.probe import OVERDUE


@dataclass(frozen=True, slots=True)
class LagCritical:
    """Seconds, or a number of messages that wait."""

    seconds: float | None = None
    messages: int | None = None

    def is_reached(self, *, backlog: int | None, behind: float | None) -> bool:
        """What isn't known reaches nothing."""
        if self.messages is not None and backlog is not None and backlog >= self.messages:
            return True
        return self.seconds is not None and behind is not None and behind >= self.seconds


def seconds_behind(
    backlog: int | None, rate: float, *, stuck: float, probe: float | None, interval: float | None = None
) -> float | None:
    """How long a message that arrives now waits: what the last probe took, else the backlog at the present rate of
    messages in a second; where none moves, for how long that has been so. None while the backlog isn't known.

    `interval` is that of probes. One that is overdue may still be on its way, and shows the least only.
    """
    estimate = _estimate(backlog, rate, stuck)
    if probe is None:
        return estimate
    is_overdue = interval is not None and probe >= OVERDUE * interval
    return max(probe, estimate or 0.0) if is_overdue else probe


def _estimate(backlog: int | None, rate: float, stuck: float) -> float | None:
    if not backlog:
        return None if backlog is None else 0.0
    return backlog / rate if rate > 0 else stuck
