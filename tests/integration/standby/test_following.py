"""A standby follows: definitions, messages once each, what its status says; and takes over once its source is gone."""

from __future__ import annotations

from tests.integration.standby.scene import VHOST, StandbyScene
from tests.lab.waiting import eventually


def _is_bound(standby: StandbyScene) -> bool:
    found = standby.node.admin.get("exchanges", VHOST, "orders", "bindings", "source")
    return any(each["destination_type"] == "exchange" and each["destination"] == "audit" for each in found)


def test_it_follows_and_a_failover_has_all_that_came_and_makes_what_waited(standby: StandbyScene) -> None:
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
    eventually(lambda: standby.depths().get("late") == (0, 0), what="a later queue is followed")
    standby.source_node.stop()
    dry = standby.run("promote", "-c", "agent.yaml", "--failover", "--dry-run")
    assert (dry["promoted"], dry["repeats_at_most"], len(dry["bindings"])) == (False, 20, 1)
    assert not _is_bound(standby)
    done = standby.run("promote", "-c", "agent.yaml", "--failover")
    assert (done["promoted"], done["agent_has_ended"], done["left"]) == (True, True, {})
    assert _is_bound(standby)
    standby.here.publish(["new"], exchange="orders")
    expected = [*map(str, range(10)), "new"]
    assert standby.here.take(11, queue="orders") == expected
    assert standby.here.take(11, queue="audit") == expected
    found = standby.status()
    assert not found["in_step"]
    assert "promoted" in found["why_not"][0]
    again = standby.run("promote", "-c", "agent.yaml", "--failover")
    assert again["since"] == done["since"]
    assert (dry["missing"], again["missing"]) == (0, None)
