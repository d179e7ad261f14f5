"""Whatever one upstream does, another upstream's link flows, HTTP answers, memory is bounded, SIGTERM is obeyed."""

from __future__ import annotations

import pytest

from tests.hostile.misbehaviours import MISBEHAVIOURS
from tests.hostile.peer import Behaviour, HostileBroker
from tests.hostile.scene import Scene, stopped_at_the_end

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("behaviour", MISBEHAVIOURS.values(), ids=MISBEHAVIOURS)
def test_a_hostile_upstream_hurts_nobody_else(scene: Scene, behaviour: Behaviour) -> None:
    with HostileBroker(behaviour) as hostile, stopped_at_the_end(scene):
        scene.start(hostile.uri)
        scene.endure(3.0)
