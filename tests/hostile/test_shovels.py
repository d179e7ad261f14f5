"""Whatever the broker at one end of a shovel does, others go on, and nothing is lost at the end that behaves."""

from __future__ import annotations

from typing import Final

import pytest

from tests.hostile.peer import Behaviour, HostileBroker
from tests.hostile.scene import Scene, stopped_at_the_end
from tests.hostile.shovel_misbehaviours import DESTINATIONS, JUNK, SOURCES, UNREADABLE, junk_shovelled
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

pytestmark = pytest.mark.timeout(120)
SECONDS: Final = 2.5
COUNT: Final = 200


def start(scene: Scene, source: str, destination: str) -> None:
    definition = {
        "src-uri": source,
        "src-queue": "src",
        "dest-uri": destination,
        "dest-queue": "dest",
        "reconnect-delay": 1,
        "dest-add-forward-headers": True,
    }
    scene.start_beside({"shovels": {"hostile": definition}})


@pytest.mark.parametrize("behaviour", DESTINATIONS.values(), ids=DESTINATIONS)
def test_a_hostile_destination_hurts_nobody_and_costs_no_message(scene: Scene, behaviour: Behaviour) -> None:
    source = scene.victim.queue(name="src")
    source.publish(numbered(COUNT), "src", exchange="")
    with HostileBroker(behaviour) as hostile, stopped_at_the_end(scene):
        start(scene, source.uri, hostile.uri)
        scene.endure(SECONDS)
        assert hostile.connections < 100
    eventually(lambda: depth(source.uri, "src") == COUNT, what="all are back")


@pytest.mark.parametrize("behaviour", SOURCES.values(), ids=SOURCES)
def test_a_hostile_source_hurts_nobody(scene: Scene, behaviour: Behaviour) -> None:
    with HostileBroker(behaviour) as hostile, stopped_at_the_end(scene):
        start(scene, hostile.uri, scene.victim.uri)
        scene.endure(SECONDS)
        assert hostile.connections < 100


def test_forged_headers_stop_nothing(scene: Scene) -> None:
    """What can be read goes on; what can't is held and shown, and what follows passes it."""
    with HostileBroker(junk_shovelled) as hostile, stopped_at_the_end(scene):
        start(scene, hostile.uri, scene.victim.uri)
        held = f"{len(UNREADABLE)} messages can't be published downstream: {len(UNREADABLE)} with properties"
        eventually(lambda: str(scene.hostile_status().get("error")).startswith(held), 20, what="some are held")
        assert scene.hostile_status()["status"] == "running"
        assert depth(scene.victim.uri, "dest") == len(JUNK) - len(UNREADABLE) + 1
