"""The lag from which on a link is critical: `lag-critical`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.core.links.probe import OVERDUE
from agent.core.text.quantities import counted, in_full, in_words

SHRINKS: Final = 0.05  # of what waits in a minute: less is no catching up


@dataclass(frozen=True, slots=True)
class LagCritical:
    """A limit for the lag of a link: in seconds, or in messages that wait."""

    seconds: float | None = None
    messages: int | None = None

    def is_reached(self, *, backlog: int | None, behind: float | None) -> bool:
        """True if the backlog or the seconds behind have reached their limit; what isn't known has not."""
        if self.messages is not None and backlog is not None and backlog >= self.messages:
            return True
        return self.seconds is not None and behind is not None and behind >= self.seconds


def seconds_behind(
    backlog: int | None, rate: float, *, stuck: float, probe: float | None, interval: float | None = None
) -> float | None:
    """Seconds that a message that arrives now waits: the time that the last probe took, else the backlog divided by the
    present rate of messages in a second; where none moves, the time since one did. None while the backlog isn't known.

    `interval` is that of probes. One that is overdue may still be on its way, so its time is only a lower bound.
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


@dataclass(frozen=True, slots=True)
class LinkRate:
    """Messages in a second: `rate` is what a link forwards, `growth` what its backlog grows by. None where that isn't
    known."""

    rate: float
    growth: float | None


@dataclass(frozen=True, slots=True)
class LagDescription:
    """`is_at_prefetch`: messages flow, and it has as many unconfirmed as its definition allows, which isn't `auto`."""

    text: str
    is_catching_up: bool = False
    is_at_prefetch: bool = False


NO_LAG: Final = LagDescription("")


def describe_lag(
    limit: LagCritical,
    *,
    backlog: int | None,
    behind: float | None,
    flow: LinkRate,
    held: tuple[int, int],
    is_auto: bool,
) -> LagDescription:
    """Describe how far a link is behind, and whether that becomes less: "3 min 17 s behind (limit 30 s): in 200/s, out
    47/s, all 10 of its prefetch unconfirmed". `held` is how many messages it has, and may have, unconfirmed; with
    `is_auto` the agent decides how many it may have."""
    if limit.seconds is not None:
        far = f"{in_full(round(behind or 0.0))} behind (limit {in_words(limit.seconds)})"
    else:
        far = f"{counted(backlog or 0, 'message waits', 'messages wait')} (limit {limit.messages or 0:,})"
    if flow.growth is None:
        return LagDescription(f"{far}: out {_per_second(flow.rate)}")
    shrinking = -flow.growth
    if backlog and shrinking * 60 > SHRINKS * backlog:
        left = in_words(backlog / shrinking)
        return LagDescription(f"{far}: catching up at {_per_second(shrinking)}, about {left} left", is_catching_up=True)
    unsettled, prefetch = held
    is_used_up = 0 < prefetch <= unsettled
    used_up = f", all {prefetch:,} of its prefetch unconfirmed" if is_used_up else ""
    text = f"{far}: in {_per_second(max(0.0, flow.rate + flow.growth))}, out {_per_second(flow.rate)}{used_up}"
    return LagDescription(text, is_at_prefetch=is_used_up and not is_auto and flow.rate > 0)


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.1f}/s"
