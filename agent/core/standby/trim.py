"""The messages that a standby may take from the head of its copy of a queue: consumed or entered long enough ago.

A message enters the copy after it entered the source's queue. So where the source holds nothing that entered before a
time, the copy needs nothing that entered before that time. Each side is judged by its own figures, and no count of one
is ever compared with a count of the other. Every doubt keeps messages.

Whoever takes them first holds the deliveries, unacknowledged, until an allowance is `known_at` the last delivery or
later. It then acknowledges the first `messages` of them, and returns the rest. Otherwise what expires in the middle of
the queue meanwhile would move its head further than was counted.

Why: docs/decisions/0068-standby-trim.md
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.core.standby.copy_positions import NOWHERE, CopyFigures, CopyPositions
from agent.core.standby.source_proof import CONSUMER_TIMEOUT, SourceFigures, SourceProof


class TrimDoubt(StrEnum):
    """The reason why nothing is trimmed now."""

    NO_SOURCE = "the source shows no figures of this queue now: see whether it runs, and counts messages"
    NO_COPY = "the standby shows no figures of this queue now: see whether it runs, and counts messages"
    UNCOUNTED = (
        "more messages are in the standby's queue than its broker counted as they entered: see what else sends to it, "
        "such as dead-lettering at the standby"
    )
    STANDS_STILL = (
        "what is unacknowledged at the source stays so for longer than its consumer timeout, or its deliveries aren't "
        "counted: see its consumers"
    )
    DELIVERED_AGAIN = (
        "messages were returned and delivered again at the source, so which of them are gone isn't known until that "
        "has not happened for a while, or the queue has been empty"
    )
    UNPROVEN = (
        "messages waited at the source at each look, so which of them are gone isn't known until its consumers keep up"
    )
    NEW = "the queue hasn't been watched for long enough"


@dataclass(frozen=True, slots=True)
class TrimRule:
    """`after`: seconds since the source consumed what may go. `keep`: seconds after which a copy may go whatever became
    of it. `late`: the age of a figure at most, in seconds, and the time within which a broker applies an
    acknowledgement. `timeout`: seconds after which the source returns what isn't acknowledged, None if it doesn't."""

    after: float
    keep: float
    late: float = 60.0
    timeout: float | None = CONSUMER_TIMEOUT


@dataclass(frozen=True, slots=True)
class Allowance:
    """At least `messages` at the head of the copy may go, those that are held included; `doubt` says why not more. It
    counts from the copy as it was at `known_at` or later."""

    messages: int
    doubt: str | None
    known_at: float = 0.0


class StandbyTrim:
    """One queue and its copy, from the time `now` on."""

    __slots__ = ("_began", "_copy", "_gone", "_proof", "_rule")

    def __init__(self, rule: TrimRule, now: float) -> None:
        self._rule = rule
        self._began = now
        self._proof = _nothing_proven(rule, now)
        self._copy = CopyPositions(span=max(rule.keep, self._proof.patience), late=rule.late)
        self._gone = NOWHERE  # up to this position of the copy, the source holds nothing

    def forget_source(self, now: float) -> None:
        """Prove anew what the source holds no more: what was seen of it until now proves nothing."""
        self._proof = _nothing_proven(self._rule, now)
        self._began, self._gone = now, NOWHERE

    def look(
        self, now: float, source: SourceFigures | None, copy: CopyFigures | None, *, taken: int, held: int
    ) -> Allowance:
        """Compare the figures of now. `taken`: what was acknowledged of the copy so far, counted when that is sent.
        `held`: what is unacknowledged at the source, of the same report as its `messages`."""
        is_same_copy = copy is None or self._copy.look(now, copy, taken)
        is_same_source = source is None or self._proof.look(now, source, held)
        if not (is_same_copy and is_same_source):
            self._gone = NOWHERE
        if source is None or source.messages is None:
            return Allowance(0, TrimDoubt.NO_SOURCE)
        if copy is None or copy.messages is None or copy.entered is None:
            return Allowance(0, TrimDoubt.NO_COPY)
        if not self._copy.is_counted:
            return Allowance(0, TrimDoubt.UNCOUNTED)
        gone = self._proof.gone_before
        if gone is not None:  # the link may be faster than the source's queue, but not by more
            self._gone = max(self._gone, self._copy.entered_before(gone - self._rule.late))
        return Allowance(self._copy.first_ones(self._gone), self._doubt(now, gone), self._copy.known_at)

    def expired(self, now: float) -> int:
        """At least so many at the copy's head entered it more than `keep` ago, by the figures of the last look, and
        before anything is acknowledged after it. It is for queues without a message TTL. What is taken so is held
        first, as above, and counts as `taken`."""
        return self._copy.first_ones(self._copy.entered_before(now - self._rule.keep)) if self._copy.is_counted else 0

    def _doubt(self, now: float, gone: float | None) -> TrimDoubt | None:
        patience = self._rule.after + self._proof.patience
        if gone is not None and now - gone <= patience:
            return None
        if self._proof.stands_still:
            return TrimDoubt.STANDS_STILL
        if self._proof.was_delivered_again:
            return TrimDoubt.DELIVERED_AGAIN
        return TrimDoubt.NEW if now - self._began <= patience else TrimDoubt.UNPROVEN


def _nothing_proven(rule: TrimRule, now: float) -> SourceProof:
    return SourceProof(now, after=rule.after, late=rule.late, timeout=rule.timeout)
