"""The state of a standby: whether it is in step with its source, why not, and what a promotion would mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from agent.core.text import counted, in_words, listed

if TYPE_CHECKING:
    from agent.core.migration.objects import ObjectKey
    from agent.core.standby.copies import StandbyDoubt, StandbyGone
    from agent.core.standby.settings import StandbySettings

LATE: Final = 60.0
"""Seconds since definitions were followed, or queues looked at, after which what is known is old."""
LOOKS: Final = 4
"""In which what is on its way between two looks doesn't seem to be missing."""
Depths: TypeAlias = "Mapping[ObjectKey, tuple[int | None, int | None]]"
"""Messages of each queue at the source and here; None where that isn't known."""


@dataclass(frozen=True, slots=True)
class StandbyLinks:
    """The links of a standby now: what each that doesn't work says, and the most that waits in all that this agent
    runs, as far as it is known. Those that run `elsewhere`, in other agents of the group, are known there. `lag` is the
    longest that a probe took, in seconds."""

    number: int = 0
    not_working: tuple[str, ...] = ()
    waiting: int | None = None
    lag: float | None = None
    elsewhere: int = 0


@dataclass(slots=True)
class StandbyStatus:
    """The state of a standby as far as it is known. Times are in seconds since 1970; errors are of the last try, and
    empty if it had none."""

    settings: StandbySettings
    promoted_at: str | None = None
    followed_at: float | None = None
    follow_error: str = ""
    left: Mapping[ObjectKey, str] = field(default_factory=dict)
    held_back: tuple[ObjectKey, ...] = ()
    doubts: tuple[StandbyDoubt, ...] = ()
    gone: StandbyGone | None = None
    depths: Depths = field(default_factory=dict)
    trim_doubts: Mapping[ObjectKey, str] = field(default_factory=dict)
    depths_at: float | None = None
    depths_error: str = ""
    _looks: deque[Depths] = field(default_factory=lambda: deque(maxlen=LOOKS))

    def note_depths(self, depths: Depths, now: float) -> None:
        self.depths, self.depths_at, self.depths_error = depths, now, ""
        self._looks.append(depths)

    @property
    def not_here(self) -> dict[ObjectKey, int]:
        """Of queues, so many messages of the source at least that aren't here, as they are from before the standby
        began, or older than `keep`: it held more at each of some looks than was here at any of them."""
        if self.promoted_at is not None or len(self._looks) < LOOKS:
            return {}
        found: dict[ObjectKey, int] = {}
        for key in self.depths:
            looks = [look.get(key, (None, None)) for look in self._looks]
            there = [source for source, _ in looks if source is not None]
            here = [here for _, here in looks if here is not None]
            if len(there) == len(here) == LOOKS and (lacking := min(there) - max(here)) > 0:
                found[key] = lacking
        return found

    def why_not_in_step(self, links: StandbyLinks, now: float) -> tuple[str, ...]:
        return tuple(self._why_not(links, now))

    def _why_not(self, links: StandbyLinks, now: float) -> Iterator[str]:
        if self.promoted_at is not None:
            yield f"it was promoted at {self.promoted_at}"
            return
        yield from _old("definitions were followed", self.followed_at, self.follow_error, now)
        if self.left:
            named = [f"{key}: {reason}" for key, reason in self.left.items()]
            yield f"{counted(len(named), 'object is', 'objects are')} not as at the source: {listed(named)}"
        for vhost in self.gone.vhosts if self.gone is not None else ():
            yield f"the source has nothing any more of what is here in vhost {vhost!r}"
        if self.followed_at is not None and not links.number:
            yield "no link brings messages: no chosen exchange is there"
        if links.not_working:
            number = counted(len(links.not_working), "link doesn't", "links don't")
            yield f"{number} work: {listed(links.not_working)}"
        if links.number and not links.not_working and links.waiting is None:
            yield "how much waits in the links isn't known"
        yield from _old("queues were looked at", self.depths_at, self.depths_error, now)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes for an operator about all of it, none of which keeps it from being in step."""
        gone = [] if self.gone is None else [str(key) for key in self.gone.objects]
        what = counted(len(gone), "object of the standby isn't", "objects of the standby aren't")
        return (f"{what} at the source: {listed(gone)}",) if gone else ()

    @property
    def repeats_at_most(self) -> int | None:
        """The messages that consumers would get again after a promotion now, if all were consumed: those of copies. Two
        brokers' counts don't say which of them are the same."""
        here = [here for _, here in self.depths.values()]
        known = [each for each in here if each is not None]
        return sum(known) if known and len(known) == len(here) else None


def _old(what: str, at: float | None, error: str, now: float) -> Iterator[str]:
    if at is None:
        yield f"{what} not yet" + (f": {error}" if error else "")
    elif error or now - at > LATE:
        yield f"{what} {in_words(max(0.0, now - at))} ago" + (f": {error}" if error else "")
