"""Nothing that the source has is ever taken from its copy, whatever happens, and safeguards of the rule are needed."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from agent.core.standby.trim import StandbyTrim
from tests.unit.core.standby.model import AFTER, LATE, QUIET, STEP, TIMEOUT, History, any_life
from tests.unit.core.standby.safeguards import SAFEGUARDS, Safeguard, without

FEW: Final = 60
PART: Final = 500
SEEDS: Final = 120


def lost(seed: int) -> bool:
    chance = Random(seed)
    return History(any_life(chance), chance, StandbyTrim).run()


def test_nothing_is_lost_in_some_histories() -> None:
    assert not [seed for seed in range(FEW) if lost(seed)]


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(0, 10_000, PART))
def test_nothing_is_lost_in_any_history(first: int) -> None:
    assert not [seed for seed in range(first, first + PART) if lost(seed)]


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda each: each.name)
def test_the_safeguard_is_needed(safeguard: Safeguard) -> None:
    """In its life, something is lost without it, and nothing with it."""
    careless = without(safeguard)
    found = next((seed for seed in range(SEEDS) if History(safeguard.life, Random(seed), careless).run()), None)
    assert found is not None
    assert not History(safeguard.life, Random(found), StandbyTrim).run()


def test_without_a_second_look_what_expires_behind_the_head_costs_others() -> None:
    life = next(each.life for each in SAFEGUARDS if each.life.expiration)
    assert any(History(life, Random(seed), StandbyTrim, at_once=True).run() for seed in range(SEEDS))


def test_a_copy_whose_source_is_consumed_stays_short() -> None:
    """It holds what entered within `after`, or the timeout of consumers, and some minutes for late figures."""
    history = History(QUIET, Random(1), StandbyTrim)
    assert not history.run(720)
    each_step = (1 + QUIET.most_published) / 2
    longest = (max(AFTER, TIMEOUT) + 15 * LATE) / STEP * each_step
    assert max(history.depths[200:]) < longest
    assert history.copy.taken > 0.8 * 720 * each_step
