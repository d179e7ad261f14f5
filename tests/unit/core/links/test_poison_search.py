from __future__ import annotations

from agent.core.links.poison_search import (
    MOST_CULPRITS,
    ONE_BY_ONE,
    ONE_BY_ONE_AFTER_A_FIND,
    WATCHED,
    PoisonSearch,
    Watch,
)

NOW = 1_000.0
CULPRIT, OTHER = b"culprit", b"other"


def test_a_link_is_watched_more_closely_each_time_and_then_shares_again() -> None:
    poison_search = PoisonSearch()
    assert poison_search.watch(NOW) is Watch.OFF
    poison_search.broke(NOW, Watch.OFF, ())
    assert poison_search.watch(NOW) is Watch.EXACT
    poison_search.broke(NOW, Watch.EXACT, [CULPRIT, OTHER])
    assert poison_search.watch(NOW) is Watch.ONE_BY_ONE
    assert poison_search.watch(NOW + ONE_BY_ONE) is Watch.EXACT
    assert poison_search.watch(NOW + WATCHED) is Watch.OFF


def test_what_was_alone_on_the_way_is_held_for_a_time() -> None:
    poison_search = PoisonSearch()
    poison_search.broke(NOW, Watch.OFF, ())
    poison_search.broke(NOW, Watch.EXACT, [CULPRIT])
    assert not poison_search.is_culprit(CULPRIT, NOW), "others were on the way that are not known of"
    poison_search.broke(NOW, Watch.ONE_BY_ONE, [CULPRIT, OTHER])
    assert poison_search.culprits(NOW) == 0
    poison_search.broke(NOW, Watch.ONE_BY_ONE, [CULPRIT])
    assert poison_search.is_culprit(CULPRIT, NOW) and not poison_search.is_culprit(OTHER, NOW)
    assert poison_search.culprits(NOW) == 1
    assert poison_search.watch(NOW + ONE_BY_ONE_AFTER_A_FIND) is Watch.EXACT
    assert not poison_search.is_culprit(CULPRIT, NOW + WATCHED)
    assert poison_search.culprits(NOW + WATCHED) == 0


def test_a_link_that_holds_something_stays_watched() -> None:
    poison_search = PoisonSearch()
    poison_search.broke(NOW, Watch.OFF, ())
    poison_search.caught(NOW + WATCHED - 1)
    assert poison_search.watch(NOW + WATCHED) is Watch.EXACT


def test_only_so_many_are_remembered_and_the_latest() -> None:
    poison_search = PoisonSearch()
    for number in range(MOST_CULPRITS + 10):
        poison_search.broke(NOW + number, Watch.ONE_BY_ONE, [b"%d" % number])
    assert poison_search.culprits(NOW) == MOST_CULPRITS
    assert not poison_search.is_culprit(b"9", NOW) and poison_search.is_culprit(b"10", NOW)
