from __future__ import annotations

from agent.core.links.lag import MOVING, QUIET, Lag


def looks(lag: Lag, begin: int, end: int) -> list[int]:
    """When a quiet link is looked at, observed once a second."""
    found = []
    for now in range(begin, end):
        lag.observe(float(now), confirmed=0, unsettled=0)
        if now >= lag.due_at:
            lag.asks(now)
            lag.counted(0)
            found.append(now)
    return found


def test_waiting_counts_from_the_last_confirm() -> None:
    lag = Lag(0.0, confirmed=5, chance=0.0)
    assert lag.observe(10.0, confirmed=5, unsettled=0) == 0
    assert lag.observe(11.0, confirmed=5, unsettled=3) == 0
    assert lag.observe(41.0, confirmed=5, unsettled=3) == 30
    assert lag.observe(42.0, confirmed=6, unsettled=2) == 0
    assert lag.observe(52.0, confirmed=6, unsettled=2) == 10
    assert lag.observe(53.0, confirmed=6, unsettled=0) == 0


def test_what_is_ready_upstream_waits_as_well() -> None:
    lag = Lag(0.0, confirmed=0, chance=0.0)
    lag.counted(7)
    lag.observe(1.0, confirmed=0, unsettled=0)
    assert lag.observe(21.0, confirmed=0, unsettled=0) == 20
    lag.forgive()
    assert lag.observe(22.0, confirmed=0, unsettled=0) == 0
    assert lag.observe(32.0, confirmed=0, unsettled=0) == 10


def test_what_was_ready_before_the_last_confirm_is_no_backlog_until_looked_at_again() -> None:
    lag = Lag(0.0, confirmed=0, chance=0.0)
    lag.counted(7)
    lag.observe(1.0, confirmed=7, unsettled=0)
    assert lag.observe(60.0, confirmed=7, unsettled=0) == 0
    lag.counted(3)
    lag.observe(61.0, confirmed=7, unsettled=0)
    assert lag.observe(71.0, confirmed=7, unsettled=0) == 10


def test_a_quiet_link_is_looked_at_soon_and_then_rarely() -> None:
    first, second, *later = looks(Lag(0.0, confirmed=0, chance=0.5), 0, 3000)
    assert 0 <= first <= MOVING
    assert 0 < second - first <= QUIET
    assert [after - before for before, after in zip([second, *later], later, strict=False)] == [QUIET] * len(later)
    assert len(later) >= 3


def test_links_that_began_together_are_looked_at_apart() -> None:
    seen = [looks(Lag(0.0, confirmed=0, chance=number / 60), 0, 160) for number in range(60)]
    busiest = max(sum(now in each for each in seen) for now in range(100, 160))
    assert busiest <= 4


def test_a_moving_link_is_looked_at_every_few_seconds() -> None:
    lag = Lag(0.0, confirmed=0, chance=0.0)
    looks(lag, 0, 100)
    found = []
    for now in range(100, 130):
        lag.observe(float(now), confirmed=now, unsettled=0)
        if now >= lag.due_at:
            lag.asks(now)
            found.append(now)
    assert len(found) == 30 / MOVING


def test_a_queue_that_nothing_is_taken_from_is_looked_at_again_soon() -> None:
    lag = Lag(0.0, confirmed=0, chance=1.0)
    lag.asks(0.0)
    lag.counted(0)
    assert lag.due_at > MOVING
    lag.may_have_grown()
    assert lag.due_at == MOVING


def test_what_a_held_link_has_not_read_counts_once_its_prefetch_is_full() -> None:
    lag = Lag(0.0, confirmed=0, chance=1.0)
    assert lag.behind(3, prefetch=10) is None
    lag.counted(5)
    assert lag.behind(3, prefetch=10) == 8
    lag.is_held = True
    assert lag.behind(3, prefetch=10) == 15
    lag.counted(0)
    assert lag.behind(3, prefetch=10) == 3
