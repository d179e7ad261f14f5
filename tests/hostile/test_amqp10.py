"""Whatever the brokers of AMQP 1.0 at one end of shovels do, others go on, nothing is lost at the end that behaves, and
what is shown is a line that says what was wrong, without our password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.hostile.amqp10_misbehaviours import ANYWHERE, DESTINATIONS, SOURCES, UNREADABLE, Row
from tests.hostile.peer10 import SECRET
from tests.hostile.scene import Scene, stopped_at_the_end
from tests.hostile.test_shovels import all_of
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

SECONDS: Final = 1.0
COUNT: Final = 50
PATIENCE: Final = 3  # seconds for an answer
TAKEN: Final = ("settles_again", "takes_nothing")
ATTACHING: Final = ("attach_twice", "attach_high", "large_attach", "refuses_with_secrets", "echoes")
TO_THEM: Final = DESTINATIONS | {name: ANYWHERE[name] for name in ATTACHING}
QUARANTINE: Final = "federation-agent: quarantine"


def shovel(name: str, *, source: str, destination: str, ten: str) -> dict[str, Any]:
    """The end `ten` speaks AMQP 1.0."""
    found: dict[str, Any] = {"src-uri": source, "dest-uri": destination, "reconnect-delay": 1}
    for end in ("src", "dest"):
        found |= {f"{end}-protocol": "amqp10", f"{end}-address": "a"} if end == ten else {f"{end}-queue": name}
    return found


def check(scene: Scene, rows: Mapping[str, Row]) -> None:
    for name, row in rows.items():

        def is_shown(name: str = name, row: Row = row) -> bool:
            return row.shown in str(scene.status_of(name)["error"] or "")

        eventually(is_shown, what=f"{name} shows {row.shown!r}, not {scene.status_of(name)['error']!r}")
    for name in rows:
        shown = str(scene.status_of(name)["error"] or "")
        assert shown.isprintable() and SECRET not in shown, shown


def endure(scene: Scene, rows: Mapping[str, Row], *, ten: str) -> None:
    good = scene.victim.uri
    with all_of({name: row.behaviour for name, row in rows.items()}) as brokers, stopped_at_the_end(scene):
        ends = {name: (f"{broker.uri}?connection_timeout={PATIENCE * 1000}", good) for name, broker in brokers.items()}
        shovels = {
            name: shovel(
                name, source=bad if ten == "src" else good, destination=bad if ten == "dest" else good, ten=ten
            )
            | dict(rows[name].keys)
            for name, (bad, good) in ends.items()
        }
        scene.start_beside({"shovels": shovels})
        for broker in brokers.values():
            broker.wait()
        scene.endure(SECONDS)
        check(scene, rows)
        scene.endure(SECONDS)
        assert not any(broker.is_asked_too_often for broker in brokers.values())
        if "unreadable" in rows:
            for name in ("unreadable", "other_format"):
                eventually(lambda name=name: depth(good, name) >= 1, what=f"{name}: what can be read goes on")  # type: ignore[misc]
            eventually(lambda: depth(good, "byte_by_byte") >= 5, what="what comes in bytes is whole")
            for name in ("unreadable", "other_format", "byte_by_byte"):  # a slow machine may have connected again
                eventually(lambda name=name: scene.status_of(name)["status"] == "running", what=f"{name} runs")  # type: ignore[misc]
            assert depth(good, "only_settled") == 0
        if "distrusts" in rows:
            assert scene.status_of("distrusts")["status"] != "invalid"


def test_hostile_sources_hurt_nobody(scene: Scene) -> None:
    """Those that misbehave from the beginning among them."""
    assert len(UNREADABLE) > 1
    endure(scene, SOURCES | ANYWHERE, ten="src")


def test_hostile_destinations_hurt_nobody_and_cost_no_message(scene: Scene) -> None:
    """Those that answer an attach wrongly among them."""
    for name in TO_THEM:
        scene.victim.queue(name=name).publish(numbered(COUNT), name, exchange="")
    endure(scene, TO_THEM, ten="dest")
    kept = {name: name for name in TO_THEM if name not in TAKEN} | {"takes_nothing": QUARANTINE}
    for name, queue in kept.items():
        eventually(lambda queue=queue: depth(scene.victim.uri, queue) == COUNT, what=f"{name}: all are in {queue}")  # type: ignore[misc]


@pytest.mark.thorough
def test_destinations_that_misbehave_from_the_beginning_hurt_nobody(scene: Scene) -> None:
    for name in ANYWHERE:
        scene.victim.queue(name=name)
    endure(scene, ANYWHERE, ten="dest")
