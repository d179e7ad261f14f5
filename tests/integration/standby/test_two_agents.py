"""Two agents of a group beside one standby."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from agent.migration.trimming import OTHER_AGENT
from tests.integration.federation.conftest import AgentOf
from tests.integration.standby.scene import HURRIED, OLD_FIGURES, VHOST, StandbyScene
from tests.lab.waiting import eventually

TRIMMED_WITHIN = 240.0
QUEUES = ("orders", "audit")


def doubts(standby: StandbyScene) -> set[str]:
    return {doubt for queue in standby.status().get("queues", ()) for doubt in queue["doubts"]}


def consume(standby: StandbyScene) -> None:
    standby.publish(map(str, range(10)))
    for queue in QUEUES:
        assert len(standby.source.take(10, queue=queue)) == 10


def wait_trimmed(standby: StandbyScene) -> None:
    def are_empty() -> bool:
        return all(standby.node.admin.get("queues", VHOST, each)["messages"] == 0 for each in QUEUES)

    standby.wait_depths(**dict.fromkeys(QUEUES, (0, 10)))
    eventually(are_empty, TRIMMED_WITHIN, what=f"copies are taken out, not {standby.status()}")


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_one_takes_copies_out_and_the_other_goes_on(standby: StandbyScene, agent_of: AgentOf) -> None:
    scenes = standby, replace(standby, agent=agent_of(standby.node))
    standby.fill()
    for number, scene in enumerate(scenes):
        scene.write(name=f"agent {number}", trim={"after": "5m"})
        scene.agent.start(HURRIED)
    for scene in scenes:
        scene.wait_in_step()
    one, other = eventually(lambda: _in_order(scenes), what="one takes copies out")
    time.sleep(OLD_FIGURES)
    consume(standby)
    wait_trimmed(one)
    assert doubts(other) == {OTHER_AGENT}
    assert other.agent.logged("copies taken out") == []
    consume(standby)
    one.agent.kill()
    other.wait_in_step()
    wait_trimmed(other)
    standby.publish(["new"])
    other.wait_depths(orders=(1, 1), audit=(1, 1))


def _in_order(scenes: tuple[StandbyScene, StandbyScene]) -> list[StandbyScene]:
    """First the one that takes copies out, once the other knows of it."""
    for one, other in (scenes, scenes[::-1]):
        if OTHER_AGENT in doubts(other) and OTHER_AGENT not in doubts(one):
            return [one, other]
    return []
