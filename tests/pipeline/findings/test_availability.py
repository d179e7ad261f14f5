"""Which periods are columns; needs no Spark."""

from __future__ import annotations

from agent.pipeline.findings.availability import shown_periods
from agent.pipeline.schema import SECOND
from agent.pipeline.window import Bounds

DAY = 24 * 3600 * SECOND
WINDOW = Bounds(10 * DAY, 12 * DAY)


def test_a_clock_that_is_a_second_off_adds_no_day() -> None:
    known = {9 * DAY: False, 10 * DAY: True, 11 * DAY: True, 12 * DAY: False}
    off = Bounds(WINDOW.start - 3 * SECOND // 2, WINDOW.end + 3 * SECOND // 2)
    assert shown_periods(known, off, DAY) == (10 * DAY, 11 * DAY)


def test_what_is_known_or_asked_for_stays() -> None:
    touched = Bounds(WINDOW.start - SECOND, WINDOW.end)
    assert shown_periods({9 * DAY: True, 10 * DAY: True}, touched, DAY) == (9 * DAY, 10 * DAY), (
        "something is known of it"
    )
    assert shown_periods({10 * DAY: False, 11 * DAY: True}, WINDOW, DAY) == (10 * DAY, 11 * DAY), "a whole day"
    assert shown_periods({10 * DAY: True, 11 * DAY: False, 12 * DAY: True}, WINDOW, DAY)[1] == 11 * DAY, "in the middle"
    assert shown_periods({}, WINDOW, DAY) == ()
