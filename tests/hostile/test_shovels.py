"""Whatever the brokers at one end of shovels do, others go on, and nothing is lost at the end that behaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest

from tests.hostile.peer import Behaviour, HostileBroker
from tests.hostile.scene import Scene, stopped_at_the_end
from tests.hostile.shovel_misbehaviours import DESTINATIONS, FLOOD, JUNK, SOURCES, UNREADABLE
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

SECONDS: Final = 1.0
COUNT: Final = 50


@contextmanager
def all_of(behaviours: Mapping[str, Behaviour]) -> Iterator[dict[str, HostileBroker]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(HostileBroker(found)) for name, found in behaviours.items()}


def shovel(name: str, source: str, destination: str) -> dict[str, Any]:
    return {
        "src-uri": source,
        "src-queue": name,
        "dest-uri": destination,
        "dest-queue": name,
        "reconnect-delay": 1,
        "dest-add-forward-headers": True,
    }


def endure(scene: Scene, brokers: Iterable[HostileBroker]) -> None:
    for hostile in brokers:
        hostile.wait()
    scene.endure(SECONDS)
    assert not any(hostile.is_asked_too_often for hostile in brokers)


def test_hostile_sources_and_destinations_hurt_nobody_and_cost_no_message(scene: Scene) -> None:
    """Of messages with forged headers, what can be read goes on; what can't is held and shown, and others pass it."""
    own = scene.victim
    for name in DESTINATIONS:
        own.queue(name=name).publish(numbered(COUNT), name, exchange="")
    with all_of(DESTINATIONS) as destinations, all_of(SOURCES) as sources, stopped_at_the_end(scene):
        out = {f"to {name}": shovel(name, own.uri, at.uri) for name, at in destinations.items()}
        scene.start_beside({"shovels": out | {name: shovel(name, at.uri, own.uri) for name, at in sources.items()}})
        endure(scene, [*destinations.values(), *sources.values()])
        held = f"{len(UNREADABLE)} messages can't be published downstream: {len(UNREADABLE)} with properties"
        eventually(lambda: str(scene.status_of("junk_shovelled")["error"]).startswith(held), what="some are held")
        assert scene.status_of("junk_shovelled")["status"] == "running"
        wanted = len(JUNK) - len(UNREADABLE) + 1
        eventually(lambda: depth(own.uri, "junk_shovelled") == wanted, what="all others are there")
    for name in DESTINATIONS:
        eventually(lambda queue=name: depth(own.uri, queue) == COUNT, what=f"all are back in {name}")  # type: ignore[misc]


@pytest.mark.thorough
def test_a_source_that_floods_hurts_nobody(scene: Scene) -> None:
    with all_of(FLOOD) as brokers, stopped_at_the_end(scene):
        scene.start_beside({"shovels": {name: shovel(name, at.uri, scene.victim.uri) for name, at in brokers.items()}})
        endure(scene, brokers.values())
