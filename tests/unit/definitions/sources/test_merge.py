"""Several sources become one; a name that two of them define is refused, and both are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.addresses import uri
from agent.core.model import Binding, Definitions, Upstream, VhostDefinitions
from agent.definitions.sources.merge import merge
from agent.errors import ConfigurationError, Place


def upstream(name: str, place: Place, vhost: str = "/") -> Definitions:
    found = Upstream(name, (uri.parse("amqp://h"),), place)
    return Definitions({vhost: VhostDefinitions(upstreams={name: found})})


HERE, THERE = Place("agent.yaml", 3, 5), Place("http://h:15672 federation-upstream 'a' in vhost '/'")


def test_sources_add_up() -> None:
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
