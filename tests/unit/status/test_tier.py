from __future__ import annotations

from agent.status.tier import Step, Tier


def tier_of(*steps: tuple[float, int, int | None, float], size: int = 3) -> list[Step]:
    tier = Tier(60.0, size)
    for step in steps:
        tier.put(Step(*step))
    return list(tier)


def test_a_step_has_the_last_total_and_the_most_that_waited() -> None:
    assert tier_of((0.0, 5, 10, 0.5), (15.0, 9, None, 2.0), (59.0, 12, 4, 0.0)) == [Step(59.0, 12, 10, 2.0)]


def test_the_oldest_step_makes_room_for_the_latest() -> None:
    found = tier_of(*((60.0 * at, at, at, 0.0) for at in range(8)))
    assert [step.forwarded for step in found] == [5, 6, 7]


def test_a_full_tier_merges_into_its_latest_step() -> None:
    steps = [(60.0 * at, at, at, 0.0) for at in range(5)]
    assert [step.forwarded for step in tier_of(*steps, (245.0, 50, None, 0.0))] == [2, 3, 50]


def test_an_unknown_backlog_stays_unknown_and_a_huge_one_is_the_most_there_is() -> None:
    assert [step.backlog for step in tier_of((0.0, 0, None, 0.0), (60.0, 0, 2**40, 0.0))] == [None, 2**32 - 2]


def test_a_clock_that_is_set_back_begins_another_step() -> None:
    assert [step.at for step in tier_of((600.0, 1, 0, 0.0), (0.0, 2, 0, 0.0))] == [600.0, 0.0]
