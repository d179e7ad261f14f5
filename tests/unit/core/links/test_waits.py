from __future__ import annotations

import pytest

from agent.core.links.waits import CleanupAfter, announce, duration


@pytest.mark.parametrize(("messages", "due"), [(0, 110.0), (1, 700.0), (None, 700.0)])
def test_a_queue_that_may_hold_messages_is_kept_for_longer(messages: int | None, due: float) -> None:
    assert CleanupAfter().due_at(100.0, messages) == due


def test_only_two_zeros_need_no_look_at_the_queue() -> None:
    assert CleanupAfter(0, 0).is_at_once
    assert not CleanupAfter(0, 600).is_at_once
    assert not CleanupAfter(10, 0).is_at_once


def test_what_an_operator_is_shown() -> None:
    assert announce(580, 204, held=False) == (
        "no longer defined; its queue upstream is removed in 9 min 40 s (204 messages wait); define it again to keep it"
    )
    assert "in 10 s (it is empty)" in announce(9.7, 0, held=False)
    assert "(1 message waits)" in announce(5, 1, held=False)
    assert "can't be reached" in announce(5, None, held=True)
    assert "once definitions can be read again" in announce(-1, 0, held=True)
    assert "in 0 s" in announce(-1, 0, held=False)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119.4, "119 s"), (120, "2 min"), (600, "10 min"), (3661, "1 h 1 min 1 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
