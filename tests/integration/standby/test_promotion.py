"""A standby that takes over with its source there, exactly; what keeps it from that; the way back from a failover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aio_pika
import pytest

from tests.integration.standby.conftest import UNSET_TICK
from tests.integration.standby.scene import HURRIED, VHOST, StandbyScene
from tests.lab.node import Node
from tests.lab.preloaded import COMMAND
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE, eventually


@pytest.mark.versions
def test_the_way_back_from_a_failover(
    standby_on: Callable[[str | None, str | None], StandbyScene], proxy_to: Callable[[Node | int], Proxy]
) -> None:
    """As docs/standby.md says: what hadn't come is still at the former source, and is brought; then it follows."""
    standby = standby_on(None, "sid")
    source, to_source = standby.source, proxy_to(standby.source_node)
    standby.fill()
    standby.write({"uri": standby.source_node.uri("", port=to_source.port)[: -len("/")]})
    standby.agent.start(HURRIED)
    standby.wait_in_step()
    standby.publish(map(str, range(10)))
    standby.wait_depths(orders=(10, 10), audit=(10, 10))
    to_source.blackhole()
    standby.publish(["10", "11", "12"])
    standby.source_node.kill()
    assert standby.run("promote", "-c", "agent.yaml", "--failover")["agent_has_ended"]
    standby.source_node.start()
    to_source.restore()
    queues = [each["name"] for each in source.node.admin.get("queues", VHOST)]
    of_links = [each for each in queues if each.startswith("federation: ")]
    for queue in of_links:
        source.wait_depth(3 if queue.startswith(("federation: orders", "federation: audit")) else 0, queue)
    [of_orders] = [each for each in of_links if each.startswith("federation: orders -> ")]
    ends = ("--from", source.uri, "--queue", of_orders, "--to", standby.here.uri, "--to-exchange", "orders")
    ran = standby.lab.agents.run(("move", *ends), cwd=standby.directory, environment={}, deadline=DEADLINE)
    assert (ran.status, "taken 3 = moved 3" in ran.out) == (0, True), ran
    for queue in of_links:
        source.delete_queue(queue)
    for queue in ("orders", "audit"):
        source.node.admin.delete("queues", VHOST, queue, "contents")
    standby.reverse()
    standby.here.publish(["new"], exchange="orders")
    for queue in ("orders", "audit"):
        assert source.take(1, queue=queue) == ["new"]
        assert standby.here.take(14, queue=queue) == [*map(str, range(13)), "new"]


@pytest.mark.versions
@pytest.mark.parametrize(("source_release", "release"), [(None, "sid"), ("sid", None)])
def test_a_switchover_between_releases(
    standby_on: Callable[[str | None, str | None], StandbyScene], source_release: str | None, release: str | None
) -> None:
    """It loses and repeats nothing, and can be run again."""
    standby = standby_on(source_release, release)
    standby.fill()
    standby.start()
    standby.wait_in_step()
    standby.publish(map(str, range(10)))
    standby.wait_depths(orders=(10, 10), audit=(10, 10))
    assert len(standby.source.take(10, queue="audit")) == 10
    standby.publish(map(str, range(10, 13)))
    dry = standby.run("promote", "-c", "agent.yaml", "--switchover", "--dry-run")
    assert (dry["promoted"], dry["moved"] > 0, dry["copies_taken_out"] >= 20) == (False, True, True)
    done = standby.run("promote", "-c", "agent.yaml", "--switchover")
    assert (done["promoted"], done["moved"], done["inexact"], done["problems"]) == (True, 16, {}, [])
    standby.source.wait_clean()
    assert standby.here.take(13, queue="orders") == [str(number) for number in range(13)]
    assert standby.here.take(3, queue="audit") == ["10", "11", "12"]
    again = asyncio.run(_repeated_beside_a_client(standby))
    assert (again["promoted"], again["copies_taken_out"]) == (True, 0)
    assert standby.run("promote", "-c", "agent.yaml", "--failover")["since"] == done["since"]
    with pytest.raises(AssertionError, match="clients may use it"):
        standby.run("promote", "-c", "agent.yaml", "--switchover")


@pytest.mark.thorough
def test_a_vhost_that_never_came_keeps_no_other_from_a_failover(standby: StandbyScene) -> None:
    standby.node.admin.vhost(VHOST)
    standby.write(vhosts={VHOST: None, "never": None})
    assert "no vhost 'never'" in standby.refused("promote", "-c", "agent.yaml", "--switchover")
    done = standby.run("promote", "-c", "agent.yaml", "--failover")
    assert (done["promoted"], done["left_out"]) == (True, ["never"])


@pytest.mark.thorough
def test_one_command_at_a_time_promotes(standby: StandbyScene) -> None:
    """It waits as it does for users, and its quorum queue counts as late as theirs."""
    for node in (standby.source_node, standby.node):
        node.eval(UNSET_TICK)  # a queue keeps what is set when it is declared
    standby.fill()
    standby.start()
    standby.wait_in_step()
    standby.publish(map(str, range(10)))
    standby.wait_depths(orders=(10, 10), audit=(10, 10))
    assert len(standby.source.take(10, queue="audit")) == 10
    running = standby.begin_switchover(COMMAND)
    output = standby.switchover
    eventually(lambda: output.exists() and "waiting until nothing moves" in output.read_text(), what="it waits")
    for number, other in enumerate(("--switchover", "--failover"), start=10):
        standby.publish([str(number)])  # it waits anew, however long the others take to start
        assert "another switchover or failover" in standby.refused("promote", "-c", "agent.yaml", other)
    assert running.wait(DEADLINE) == 0, output.read_text()
    assert standby.here.take(12, queue="orders") == [str(number) for number in range(12)]
    assert standby.here.take(2, queue="audit") == ["10", "11"]


async def _repeated_beside_a_client(standby: StandbyScene) -> dict[str, Any]:
    def repeat() -> dict[str, Any]:
        eventually(lambda: standby.node.admin.get("vhosts", VHOST, "connections"), what="a client is seen")
        return standby.run("promote", "-c", "agent.yaml", "--switchover")

    async with await aio_pika.connect(standby.here.uri):
        return await asyncio.to_thread(repeat)
