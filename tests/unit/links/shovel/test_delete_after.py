from __future__ import annotations

import pytest

from agent.core.model import AckMode, DeleteAfter, ShovelSettings
from agent.links.shovel.delete_after import NONE, Former, Until, ack_mode


def test_without_a_limit_nothing_ends_it() -> None:
    until = Until()
    until.begin(ShovelSettings(), ready=0, former=NONE, comes_again=True, now=0.0)
    assert until.remaining is None
    assert not until.has_passed(1e9)


@pytest.mark.parametrize(("after", "remaining"), [(7, 7), (0, 0), (DeleteAfter.QUEUE_LENGTH, 3)])
def test_what_is_to_be_moved(after: DeleteAfter | int, remaining: int) -> None:
    until = Until()
    until.begin(ShovelSettings(delete_after=after), ready=3, former=NONE, comes_again=True, now=0.0)
    assert until.remaining == remaining
    assert until.has_passed(0.0) is (remaining == 0)


def test_a_lost_connection_changes_nothing_of_what_is_left() -> None:
    until, settings = Until(), ShovelSettings(delete_after=DeleteAfter.QUEUE_LENGTH, delete_after_duration=10)
    until.begin(settings, ready=10, former=NONE, comes_again=True, now=0.0)
    until.begin(settings, ready=500, former=Former(4), comes_again=True, now=5.0)
    assert until.remaining == 6
    assert not until.has_passed(9.9)
    assert until.has_passed(10.0)
    until.begin(settings, ready=500, former=Former(6), comes_again=True, now=6.0)
    assert until.has_passed(6.0)


@pytest.mark.parametrize(
    ("ready", "taken"),
    [(93, 7), (90, 10), (85, 10), (98, 5), (150, 5), (None, 5)],
    ids=["3 come again", "none", "others took some", "more than can come again", "others publish", "nobody knows"],
)
def test_what_comes_again_counts_once(ready: int | None, taken: int) -> None:
    until, settings = Until(), ShovelSettings(delete_after=50)
    until.begin(settings, ready=100, former=NONE, comes_again=True, now=0.0)
    until.begin(settings, ready=ready, former=Former(10, in_doubt=5), comes_again=True, now=1.0)
    assert until.remaining == 50 - taken


def test_what_was_there_is_no_more_than_what_is_there_now() -> None:
    """Others have taken some: the shovel doesn't wait for as many that come later."""
    until, settings = Until(), ShovelSettings(delete_after=DeleteAfter.QUEUE_LENGTH)
    until.begin(settings, ready=100, former=NONE, comes_again=True, now=0.0)
    until.begin(settings, ready=20, former=Former(10), comes_again=True, now=1.0)
    assert until.remaining == 20


def test_who_restarts_it_begins_anew() -> None:
    until, settings = Until(), ShovelSettings(delete_after=5, delete_after_duration=10)
    until.begin(settings, ready=0, former=NONE, comes_again=True, now=0.0)
    until.begin_anew()
    until.begin(settings, ready=0, former=Former(5), comes_again=True, now=20.0)
    assert until.remaining == 5
    assert not until.has_passed(29.9)


def test_what_is_counted_has_to_be_acknowledged() -> None:
    counted = ShovelSettings(ack_mode=AckMode.NO_ACK, delete_after=DeleteAfter.QUEUE_LENGTH)
    assert ack_mode(counted, reads_stream=False) is AckMode.ON_PUBLISH
    uncounted = ShovelSettings(ack_mode=AckMode.NO_ACK)
    assert ack_mode(uncounted, reads_stream=False) is AckMode.NO_ACK
    assert ack_mode(uncounted, reads_stream=True) is AckMode.ON_PUBLISH


@pytest.mark.parametrize(("comes_again", "left"), [(True, 95), (False, 90)])
def test_where_nobody_knows_what_came_again_what_is_in_doubt_counts_only_if_it_never_does(
    *, comes_again: bool, left: int
) -> None:
    until, settings = Until(), ShovelSettings(delete_after=100)
    until.begin(settings, ready=None, former=NONE, comes_again=comes_again, now=0.0)
    until.begin(settings, ready=None, former=Former(10, in_doubt=5), comes_again=comes_again, now=1.0)
    assert until.remaining == left
