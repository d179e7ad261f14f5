"""Single steps of the rule; `test_trim_model` has whole histories."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Final

from agent.core.standby.trim import TICK, Allowance, CopyFigures, SourceFigures, StandbyTrim, TrimDoubt, TrimRule

RULE: Final = TrimRule(after=300.0, keep=3600.0, late=60.0, timeout=300.0)
EVERY: Final = 10.0
EMPTY: Final = SourceFigures("one", 0, 100, 0, 100)
FEW: Final = CopyFigures("one", 50, 50)
LONG: Final = RULE.after + 300.0 + TICK + 20 * RULE.late


class Watched:
    """A queue of which looks show the same, unless the test says otherwise."""

    def __init__(self, rule: TrimRule = RULE) -> None:
        self.trim = StandbyTrim(rule, 0.0)
        self.now = 0.0

    def see(
        self, source: SourceFigures | None = EMPTY, copy: CopyFigures | None = FEW, *, seconds: float = EVERY,
        taken: int = 0, held: int = 0,
    ) -> Allowance:  # fmt: skip
        found = Allowance(0, None)
        for _ in range(int(seconds / EVERY)):
            self.now += EVERY
            found = self.trim.look(self.now, source, copy, taken=taken, held=held)
        return found

    def see_moving(self, *, redelivered_every: int | None = None, is_counted: bool = True) -> Allowance:
        """Five messages are with consumers at each look, each time others."""
        found = Allowance(0, None)
        for number in range(int(3 * LONG / EVERY)):
            redelivered = number // redelivered_every if redelivered_every else 0
            seen = SourceFigures("one", 5, 100 + number, redelivered if is_counted else None, 95 + number)
            found = self.see(seen, held=5)
        return found


def test_nothing_goes_before_what_was_consumed_is_old_enough() -> None:
    watched = Watched()
    found = watched.see(seconds=300)
    assert (found.messages, found.doubt) == (0, TrimDoubt.NEW)
    found = watched.see(seconds=LONG)
    assert (found.messages, found.doubt) == (50, None)
    assert watched.now - 3 * RULE.late < found.known_at <= watched.now - 2 * RULE.late


def test_what_came_since_stays() -> None:
    watched = Watched()
    watched.see(seconds=LONG)
    assert watched.see(copy=CopyFigures("one", 60, 60), seconds=300).messages == 50
    assert watched.see(copy=CopyFigures("one", 60, 60), seconds=LONG).messages == 60


def test_what_was_seen_while_it_proved_nothing_is_forgotten_but_not_how_old_copies_are() -> None:
    watched = Watched()
    watched.see(seconds=2 * RULE.keep)
    watched.trim.forget_source(watched.now)
    found = watched.see()
    assert (found.messages, found.doubt) == (0, TrimDoubt.NEW)
    assert watched.trim.expired(watched.now) == 50
    assert watched.see(seconds=LONG).messages == 50


def test_what_was_taken_goes_only_once() -> None:
    watched = Watched()
    watched.see(seconds=LONG)
    assert watched.see(taken=30).messages == 20
    assert watched.see(copy=CopyFigures("one", 20, 50), taken=30, seconds=LONG).messages == 20


def test_messages_that_wait_at_the_source_are_no_proof() -> None:
    watched = Watched()
    found = watched.see(replace(EMPTY, messages=5), held=4, seconds=3 * LONG)
    assert (found.messages, found.doubt) == (0, TrimDoubt.UNPROVEN)


def test_a_queue_whose_consumers_keep_up_needs_not_be_empty() -> None:
    watched = Watched()
    found = watched.see_moving()
    assert (found.messages, found.doubt) == (50, None)
    again = SourceFigures("one", 5, 9000, 1, 8995)
    assert watched.see(again, held=5, seconds=LONG).messages == 50, "what was proven stays so"


def test_without_a_timeout_only_an_empty_queue_is_proof() -> None:
    watched = Watched(replace(RULE, timeout=None))
    found = watched.see_moving()
    assert (found.messages, found.doubt) == (0, TrimDoubt.UNPROVEN)
    assert watched.see(seconds=LONG).messages == 50


def test_redeliveries_are_a_doubt() -> None:
    watched = Watched()
    found = watched.see_moving(redelivered_every=20)
    assert (found.messages, found.doubt) == (0, TrimDoubt.DELIVERED_AGAIN)


def test_what_stays_unacknowledged_for_too_long_is_a_doubt() -> None:
    watched = Watched()
    found = watched.see(SourceFigures("one", 5, 100, 0, 95), held=5, seconds=3 * LONG)
    assert (found.messages, found.doubt) == (0, TrimDoubt.STANDS_STILL)


def test_figures_that_are_missing_are_a_doubt_and_no_more() -> None:
    watched = Watched()
    watched.see(seconds=LONG)
    assert watched.see(None) == Allowance(0, TrimDoubt.NO_SOURCE)
    assert watched.see(replace(EMPTY, messages=None)) == Allowance(0, TrimDoubt.NO_SOURCE)
    assert watched.see(copy=None) == Allowance(0, TrimDoubt.NO_COPY)
    assert watched.see(copy=CopyFigures("one", 50, None)) == Allowance(0, TrimDoubt.NO_COPY)
    assert watched.see().messages == 50


def test_without_a_count_of_redeliveries_only_an_empty_queue_is_proof() -> None:
    watched = Watched()
    found = watched.see_moving(is_counted=False)
    assert found.messages == 0
    assert watched.see(SourceFigures("one", 0, None, None, None), seconds=LONG).messages == 50


def test_another_queue_at_the_source_or_counters_that_fall_begin_anew() -> None:
    for anew in (replace(EMPTY, identity="two"), replace(EMPTY, delivered=99), replace(EMPTY, acknowledged=0)):
        watched = Watched()
        assert watched.see(seconds=LONG).messages == 50
        assert watched.see(anew).messages == 0
        assert watched.see(anew, seconds=LONG).messages == 50


def test_another_copy_or_a_count_that_falls_begins_anew() -> None:
    for anew in (CopyFigures("two", 50, 50), CopyFigures("one", 50, 0)):
        watched = Watched()
        watched.see(seconds=LONG)
        assert watched.see(copy=anew).messages == 0
        assert watched.see(copy=anew, seconds=LONG).messages == 50


def test_messages_that_nobody_counted_are_a_doubt() -> None:
    """Such as those that a queue of the standby dead-letters into it."""
    watched = Watched()
    watched.see(seconds=LONG)
    found = watched.see(copy=CopyFigures("one", 51, 50), seconds=LONG)
    assert (found.messages, found.doubt) == (0, TrimDoubt.UNCOUNTED)
    assert watched.trim.expired(watched.now + 2 * RULE.keep) == 0


def test_what_expires_or_is_purged_is_no_doubt() -> None:
    watched = Watched()
    watched.see(seconds=LONG)
    found = watched.see(copy=CopyFigures("one", 10, 50), seconds=LONG)
    assert (found.messages, found.doubt) == (10, None)


def test_what_is_kept_for_long_enough_may_go_whatever_the_source_has() -> None:
    watched = Watched()
    full = replace(EMPTY, messages=1000)
    watched.see(full, seconds=600)
    watched.see(full, CopyFigures("one", 70, 70), seconds=RULE.keep - 60)
    assert watched.trim.expired(watched.now) == 50
    watched.see(full, CopyFigures("one", 70, 70), seconds=600)
    assert watched.trim.expired(watched.now) == 70
    watched.see(full, CopyFigures("one", 70, 70), taken=65)
    assert watched.trim.expired(watched.now) == 5


def test_looks_need_bounded_memory() -> None:
    """The same after three hours as after two, of looks that come every second."""
    trim, sizes = StandbyTrim(RULE, 0.0), []
    for second in range(3 * 3600 + 1):
        source = SourceFigures("one", second % 2, second, 0, second)
        trim.look(float(second), source, CopyFigures("one", 5, second), taken=0, held=second % 2)
        if second in {7200, 10_800}:
            sizes.append(len(pickle.dumps(trim)))
    assert sizes[1] < 1.1 * sizes[0] < 50_000
