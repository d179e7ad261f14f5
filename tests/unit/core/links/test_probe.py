"""When a probe that hasn't come through is lost: then another one may be sent."""

from __future__ import annotations

from agent.core.links.probe import OnItsWay, Passage


def seen(*, ready: int = 0, underway: int = 0, taken: int = 0, prefetch: int = 10) -> Passage:
    return Passage(ready, underway, taken, prefetch)


def test_it_is_lost_where_nothing_waits_or_moves_twice_in_a_row() -> None:
    way = OnItsWay(b"it", 0.0)
    looks = (seen(), seen(underway=1), seen(), seen(ready=1), seen())
    assert not any(way.look(each) for each in looks)
    assert way.look(seen())


def test_it_is_not_lost_while_it_waits_however_long() -> None:
    way = OnItsWay(b"it", 0.0)
    assert not any(way.look(seen(ready=200 - number, underway=10, taken=number)) for number in range(190))


def test_it_is_not_lost_where_others_come_behind_it_all_the_time() -> None:
    way = OnItsWay(b"it", 0.0)
    assert not way.look(seen(ready=50, underway=10))
    assert not any(way.look(seen(ready=1000, underway=10, taken=number)) for number in range(60))


def test_it_is_lost_once_all_that_stood_before_it_has_come() -> None:
    way = OnItsWay(b"it", 0.0)
    assert not way.look(seen(ready=50, underway=10))
    assert way.look(seen(ready=1000, underway=10, taken=60))
