from __future__ import annotations

from agent.core.links.suspicion import MOST_CULPRITS, ONE_BY_ONE, ONE_BY_ONE_AFTER_A_FIND, WATCHED, Suspicion, Watch

NOW = 1_000.0
CULPRIT, OTHER = b"culprit", b"other"


def test_a_link_is_watched_more_closely_each_time_and_then_shares_again() -> None:
    suspicion = Suspicion()
    assert suspicion.watch(NOW) is Watch.OFF
    suspicion.broke(NOW, Watch.OFF, ())
    assert suspicion.watch(NOW) is Watch.EXACT
    suspicion.broke(NOW, Watch.EXACT, [CULPRIT, OTHER])
    assert suspicion.watch(NOW) is Watch.ONE_BY_ONE
    assert suspicion.watch(NOW + ONE_BY_ONE) is Watch.EXACT
    assert suspicion.watch(NOW + WATCHED) is Watch.OFF


def test_what_was_alone_on_the_way_is_held_for_a_time() -> None:
    suspicion = Suspicion()
    suspicion.broke(NOW, Watch.OFF, ())
    suspicion.broke(NOW, Watch.EXACT, [CULPRIT])
    assert not suspicion.is_culprit(CULPRIT, NOW), "others were on the way that are not known of"
    suspicion.broke(NOW, Watch.ONE_BY_ONE, [CULPRIT, OTHER])
    assert suspicion.culprits(NOW) == 0
    suspicion.broke(NOW, Watch.ONE_BY_ONE, [CULPRIT])
    assert suspicion.is_culprit(CULPRIT, NOW) and not suspicion.is_culprit(OTHER, NOW)
    assert suspicion.culprits(NOW) == 1
    assert suspicion.watch(NOW + ONE_BY_ONE_AFTER_A_FIND) is Watch.EXACT
    assert not suspicion.is_culprit(CULPRIT, NOW + WATCHED)
    assert suspicion.culprits(NOW + WATCHED) == 0


def test_a_link_that_holds_something_stays_watched() -> None:
    suspicion = Suspicion()
    suspicion.broke(NOW, Watch.OFF, ())
    suspicion.caught(NOW + WATCHED - 1)
    assert suspicion.watch(NOW + WATCHED) is Watch.EXACT


def test_only_so_many_are_remembered_and_the_latest() -> None:
    suspicion = Suspicion()
    for number in range(MOST_CULPRITS + 10):
        suspicion.broke(NOW + number, Watch.ONE_BY_ONE, [b"%d" % number])
    assert suspicion.culprits(NOW) == MOST_CULPRITS
    assert not suspicion.is_culprit(b"9", NOW) and suspicion.is_culprit(b"10", NOW)
