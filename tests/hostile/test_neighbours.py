"""Whatever one upstream does, another upstream's link flows, HTTP answers, memory is bounded, SIGTERM is obeyed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

import pytest

from tests.hostile.misbehaviours import MISBEHAVIOURS
from tests.hostile.peer import HostileBroker
from tests.hostile.scene import Scene

SECONDS: Final = 0.5
AT_ONCE: Final = 4
FLOODS: Final = ("consumer_cancels", "heartbeats")
"""Go on while the agent is told to stop. Of the others it has closed the connection by itself, or they are silent:
beside those it is stopped by `test_reasons.py`."""


def test_hostile_upstreams_hurt_nobody_else(scene: Scene) -> None:
    """One agent endures four of them at once, and then the next, as starting one for each takes far longer."""
    scene.victim.exchange().queue("#")
    scene.begin()
    failures = []
    for names in batched(MISBEHAVIOURS, AT_ONCE):
        with ExitStack() as stack:
            scene.meet_upstreams({name: stack.enter_context(HostileBroker(MISBEHAVIOURS[name])) for name in names})
            try:
                scene.endure(SECONDS)
            except AssertionError as error:
                failures.append(f"{', '.join(names)}: {error}")
    assert not failures, "\n".join(failures)
    scene.stop()


def batched(names: Iterable[str], size: int) -> list[list[str]]:
    every = list(names)
    return [every[at : at + size] for at in range(0, len(every), size)]


@pytest.mark.thorough
def test_a_stop_is_obeyed_while_upstreams_flood(scene: Scene) -> None:
    scene.victim.exchange().queue("#")
    scene.begin()
    with ExitStack() as stack:
        scene.meet_upstreams({name: stack.enter_context(HostileBroker(MISBEHAVIOURS[name])) for name in FLOODS})
        scene.stop()
