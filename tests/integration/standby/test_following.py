"""A standby that follows: definitions, messages once each, an end for old ones, and what its status says."""

from __future__ import annotations

from tests.integration.standby.scene import StandbyScene
from tests.lab.waiting import eventually


def test_definitions_follow_and_messages_come_once(standby: StandbyScene) -> None:
    standby.fill()
    standby.start()
    found = standby.wait_in_step()
    assert [each.partition(" with")[0] for each in found["held_back"]] == [
        "binding from exchange 'orders' to exchange 'audit'"
    ]
    standby.publish(map(str, range(10)))
    assert len(standby.source.take(10, queue="orders")) == 10
    standby.wait_depths(orders=(0, 10), audit=(10, 10))
    assert standby.status()["repeats_at_most"] == 20
    standby.source.queue("late", name="late", exchange="orders")
    eventually(lambda: "late" in standby.depths(), what="a later queue is followed")
