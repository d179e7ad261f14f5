from __future__ import annotations

import pytest

from agent.core.model import AckMode, DeleteAfter, ShovelSettings
from agent.links.shovel.until import Until, ack_mode


def test_without_a_limit_nothing_ends_it() -> None:
    until = Until()
    until.begin(ShovelSettings(), ready=0, arrived=0, now=0.0)
    assert until.remaining is None
    assert not until.has_passed(1e9)


@pytest.mark.parametrize(("after", "remaining"), [(7, 7), (0, 0), (DeleteAfter.QUEUE_LENGTH, 3)])
def test_what_is_to_be_moved(after: DeleteAfter | int, remaining: int) -> None:
    until = Until()
    until.begin(ShovelSettings(delete_after=after), ready=3, arrived=100, now=0.0)
    assert until.remaining == remaining
    assert until.has_passed(0.0) is (remaining == 0)


def test_a_lost_connection_changes_nothing_of_what_is_left() -> None:
    until, settings = Until(), ShovelSettings(delete_after=DeleteAfter.QUEUE_LENGTH, delete_after_duration=10)
    until.begin(settings, ready=10, arrived=0, now=0.0)
    until.begin(settings, ready=500, arrived=4, now=5.0)
    assert until.remaining == 6
    assert not until.has_passed(9.9)
    assert until.has_passed(10.0)
    until.begin(settings, ready=500, arrived=10, now=6.0)
    assert until.has_passed(6.0)


def test_who_restarts_it_begins_anew() -> None:
    until, settings = Until(), ShovelSettings(delete_after=5, delete_after_duration=10)
    until.begin(settings, ready=0, arrived=0, now=0.0)
    until.begin_anew()
    until.begin(settings, ready=0, arrived=5, now=20.0)
    assert until.remaining == 5
    assert not until.has_passed(29.9)


def test_what_is_counted_has_to_be_acknowledged() -> None:
    counted = ShovelSettings(ack_mode=AckMode.NO_ACK, delete_after=DeleteAfter.QUEUE_LENGTH)
    assert ack_mode(counted) is AckMode.ON_PUBLISH
    assert ack_mode(ShovelSettings(ack_mode=AckMode.NO_ACK)) is AckMode.NO_ACK
