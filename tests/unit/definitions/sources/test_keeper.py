"""What stays in force, whatever the sources say in whichever order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.addresses import uri
from agent.core.model import Binding, Definitions, Upstream, VhostDefinitions
from agent.definitions.sources.keeper import Keeper, SourceReading, merge
from agent.errors import ConfigurationError, Place, Problem, Severity

BAD = Problem(Place("a.yaml", 1, 2), "what is this?")


def reading(*names: str, source: str = "test") -> SourceReading:
    upstreams = {name: Upstream(name, (), Place(source)) for name in names}
    return SourceReading(Definitions({"/": VhostDefinitions(upstreams=upstreams)}))


def offer(keeper: Keeper, source: str, *names: str) -> None:
    keeper.take(source, lambda: reading(*names, source=source))


def reject(keeper: Keeper, source: str) -> None:
    def read() -> SourceReading:
        raise ConfigurationError([BAD])

    keeper.take(source, read)


def in_force(keeper: Keeper) -> set[str]:
    return set(keeper.current.definitions.of("/").upstreams)


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


def test_nothing_is_in_force_at_first(keeper: Keeper) -> None:
    assert in_force(keeper) == set()
    assert not keeper.problems


def test_sources_add_up(keeper: Keeper) -> None:
    warning = Problem(Place("b"), "odd", Severity.WARNING)
    offer(keeper, "a", "x")
    keeper.take("b", lambda: replace(reading("y"), warnings=(warning,), verdicts={"/": {}}))
    assert in_force(keeper) == {"x", "y"}
    assert (keeper.current.warnings, keeper.current.verdicts) == ((warning,), {"/": {}})


def test_a_bad_document_changes_nothing_until_it_is_mended(keeper: Keeper) -> None:
    offer(keeper, "a", "x")
    reject(keeper, "a")
    assert in_force(keeper) == {"x"}
    assert keeper.problems == (BAD,)
    offer(keeper, "a", "y")
    assert in_force(keeper) == {"y"}
    assert not keeper.problems


def test_another_source_still_changes_while_one_is_bad(keeper: Keeper) -> None:
    offer(keeper, "a", "x")
    reject(keeper, "a")
    offer(keeper, "b", "y")
    assert in_force(keeper) == {"x", "y"}
    assert keeper.problems == (BAD,)


def test_a_conflict_keeps_what_was_in_force(keeper: Keeper) -> None:
    offer(keeper, "a", "x")
    offer(keeper, "b", "y")
    offer(keeper, "b", "x", "z")
    assert in_force(keeper) == {"x", "y"}
    assert [str(problem) for problem in keeper.problems] == [
        "b: upstream 'x' in vhost '/' is also defined at a; rename or remove one of them"
    ]


def test_a_name_moves_from_source_to_source_in_either_order(keeper: Keeper) -> None:
    offer(keeper, "a", "x")
    offer(keeper, "b", "x")
    assert in_force(keeper) == {"x"}
    assert len(keeper.problems) == 1
    offer(keeper, "a")
    assert in_force(keeper) == {"x"}
    assert not keeper.problems


def test_two_sources_swap_names(keeper: Keeper) -> None:
    offer(keeper, "a", "x")
    offer(keeper, "b", "y")
    offer(keeper, "a", "y")
    offer(keeper, "b", "x")
    assert in_force(keeper) == {"x", "y"}
    assert not keeper.problems


def test_what_only_a_forgotten_source_defines_is_not_in_force(keeper: Keeper) -> None:
    offer(keeper, "a", "x")
    offer(keeper, "b", "y")
    keeper.forget("a")
    assert in_force(keeper) == {"y"}


def test_a_forgotten_source_makes_room(keeper: Keeper) -> None:
    offer(keeper, "a", "x", "y")
    offer(keeper, "b", "x")
    keeper.forget("a")
    assert in_force(keeper) == {"x"}
    assert not keeper.problems


readings = st.lists(st.sampled_from("wxyz"), max_size=3, unique=True)
steps = st.lists(st.tuples(st.sampled_from("abc"), st.none() | readings), max_size=12)


@given(steps)
def test_what_is_in_force_never_conflicts_and_is_the_latest_where_the_latest_fits(
    steps: list[tuple[str, list[str] | None]],
) -> None:
    keeper = Keeper()
    latest: dict[str, Definitions] = {}
    rejected: set[str] = set()
    for source, names in steps:
        if names is None:
            reject(keeper, source)
            rejected.add(source)
        else:
            latest[source] = reading(*names).definitions
            offer(keeper, source, *names)
            rejected.discard(source)
    try:
        wanted = merge(latest.items())
    except ConfigurationError:
        assert keeper.problems
    else:
        if not rejected:
            assert in_force(keeper) == set(wanted.of("/").upstreams)
            assert not keeper.problems


def by_vhost(**names: str) -> SourceReading:
    """One upstream in each of these vhosts."""
    vhosts = {
        vhost: VhostDefinitions(upstreams={name: Upstream(name, (), Place("broker"))}) for vhost, name in names.items()
    }
    return SourceReading(Definitions(vhosts), is_by_vhost=True)


def test_a_name_that_conflicts_in_one_vhost_holds_up_no_other_vhost(keeper: Keeper) -> None:
    keeper.take("file", lambda: by_vhost(tenant="origin"))
    keeper.take("broker", lambda: by_vhost(tenant="own", other="one"))
    keeper.take("broker", lambda: by_vhost(tenant="origin", other="two"))

    found = keeper.current.definitions
    assert set(found.of("other").upstreams) == {"two"}
    assert set(found.of("tenant").upstreams) == {"origin", "own"}  # as before
    assert found.of("tenant").upstreams["own"].place == Place("broker")
    [problem] = keeper.problems
    assert "upstream 'origin' in vhost 'tenant' is also defined at" in problem.message
    assert keeper.refusals == ()  # no whole reading is out of force

    keeper.take("file", SourceReading)
    assert set(keeper.current.definitions.of("tenant").upstreams) == {"origin"}
    assert keeper.problems == ()


def upstream(name: str, place: Place, vhost: str = "/") -> Definitions:
    found = Upstream(name, (uri.parse("amqp://h"),), place)
    return Definitions({vhost: VhostDefinitions(upstreams={name: found})})


HERE, THERE = Place("agent.yaml", 3, 5), Place("http://h:15672 federation-upstream 'a' in vhost '/'")


def test_definitions_of_several_sources_add_up() -> None:
    merged = merge([("one", upstream("a", HERE)), ("two", upstream("b", THERE)), ("three", upstream("a", HERE, "v"))])
    assert set(merged.of("/").upstreams) == {"a", "b"}
    assert set(merged.of("v").upstreams) == {"a"}


def test_nothing_makes_nothing() -> None:
    assert merge([]) == Definitions()


def test_every_name_that_is_defined_twice_is_told_with_both_places() -> None:
    both = Definitions(
        {
            "/": replace(upstream("a", THERE).of("/"), bindings={"x": (Binding("k"),)}),
            "v": VhostDefinitions(bindings={"x": ()}),
        }
    )
    with pytest.raises(ConfigurationError) as caught:
        merge(
            [
                ("agent.yaml", upstream("a", HERE)),
                ("bindings.yaml", Definitions({"/": VhostDefinitions(bindings={"x": ()})})),
                ("http://h:15672", both),
            ]
        )
    assert [str(problem) for problem in caught.value.problems] == [
        f"{THERE}: upstream 'a' in vhost '/' is also defined at agent.yaml:3:5; rename or remove one of them",
        (
            "http://h:15672: list of bindings of exchange 'x' in vhost '/' is also defined at bindings.yaml; "
            "rename or remove one of them"
        ),
    ]
