"""What stays in force, whatever the sources say in whichever order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.model import Definitions, Upstream, VhostDefinitions
from agent.definitions.keeper import Keeper
from agent.errors import ConfigurationError, Place, Problem

BAD = Problem(Place("a.yaml", 1, 2), "what is this?")


def reading(*names: str) -> Definitions:
    upstreams = {name: Upstream(name, (), Place("test")) for name in names}
    return Definitions({"/": VhostDefinitions(upstreams=upstreams)})


def merge(sources: Sequence[tuple[str, Definitions]]) -> Definitions:
    """As strict as the real one about a name in two sources, and about nothing else."""
    owners: dict[str, str] = {}
    for source, definitions in sources:
        for name in definitions.of("/").upstreams:
            if name in owners:
                raise ConfigurationError([Problem(Place(source), f"{name} is also in {owners[name]}")])
            owners[name] = source
    return reading(*owners)


def in_force(keeper: Keeper) -> set[str]:
    return set(keeper.current.of("/").upstreams)


@pytest.fixture
def keeper() -> Keeper:
    return Keeper(merge)


def test_nothing_is_in_force_at_first(keeper: Keeper) -> None:
    assert in_force(keeper) == set()
    assert keeper.reload_success
    assert keeper.reloaded_at is None
    assert keeper.error is None


def test_sources_add_up(keeper: Keeper) -> None:
    keeper.offer("a", reading("x"), now=1)
    assert keeper.offer("b", reading("y"), now=2) == keeper.current
    assert in_force(keeper) == {"x", "y"}
    assert keeper.reloaded_at == 2


def test_a_bad_document_changes_nothing_until_it_is_mended(keeper: Keeper) -> None:
    keeper.offer("a", reading("x"), now=1)
    keeper.reject("a", [BAD])
    assert in_force(keeper) == {"x"}
    assert keeper.problems == (BAD,)
    assert keeper.reloaded_at == 1
    assert str(keeper.error) == "a.yaml:1:2: what is this?"
    keeper.offer("a", reading("y"), now=3)
    assert in_force(keeper) == {"y"}
    assert keeper.reload_success
    assert keeper.reloaded_at == 3


def test_another_source_still_changes_while_one_is_bad(keeper: Keeper) -> None:
    keeper.offer("a", reading("x"), now=1)
    keeper.reject("a", [BAD])
    keeper.offer("b", reading("y"), now=2)
    assert in_force(keeper) == {"x", "y"}
    assert keeper.problems == (BAD,)
    assert keeper.reloaded_at == 1


def test_a_conflict_keeps_what_was_in_force(keeper: Keeper) -> None:
    keeper.offer("a", reading("x"), now=1)
    keeper.offer("b", reading("y"), now=1)
    keeper.offer("b", reading("x", "z"), now=2)
    assert in_force(keeper) == {"x", "y"}
    assert [str(problem) for problem in keeper.problems] == ["b: x is also in a"]


def test_a_name_moves_from_source_to_source_in_either_order(keeper: Keeper) -> None:
    keeper.offer("a", reading("x"), now=1)
    keeper.offer("b", reading("x"), now=2)
    assert in_force(keeper) == {"x"}
    assert len(keeper.problems) == 1
    keeper.offer("a", reading(), now=3)
    assert in_force(keeper) == {"x"}
    assert keeper.reload_success
    assert keeper.reloaded_at == 3


def test_two_sources_swap_names(keeper: Keeper) -> None:
    keeper.offer("a", reading("x"), now=1)
    keeper.offer("b", reading("y"), now=1)
    keeper.offer("a", reading("y"), now=2)
    keeper.offer("b", reading("x"), now=2)
    assert in_force(keeper) == {"x", "y"}
    assert keeper.reload_success


def test_a_forgotten_source_makes_room(keeper: Keeper) -> None:
    keeper.offer("a", reading("x", "y"), now=1)
    keeper.offer("b", reading("x"), now=2)
    keeper.forget("a", now=3)
    assert in_force(keeper) == {"x"}
    assert keeper.reload_success


readings = st.lists(st.sampled_from("wxyz"), max_size=3, unique=True)
steps = st.lists(st.tuples(st.sampled_from("abc"), st.none() | readings), max_size=12)


@given(steps)
def test_what_is_in_force_never_conflicts_and_is_the_latest_where_the_latest_fits(
    steps: list[tuple[str, list[str] | None]],
) -> None:
    keeper = Keeper(merge)
    latest: dict[str, Definitions] = {}
    rejected: set[str] = set()
    for now, (source, names) in enumerate(steps):
        if names is None:
            keeper.reject(source, [BAD])
            rejected.add(source)
        else:
            latest[source] = reading(*names)
            keeper.offer(source, latest[source], now=now)
            rejected.discard(source)
    assert keeper.reload_success == (not keeper.problems)
    try:
        wanted = merge(tuple(latest.items()))
    except ConfigurationError:
        assert not keeper.reload_success
    else:
        if not rejected:
            assert in_force(keeper) == set(wanted.of("/").upstreams)
            assert keeper.reload_success
