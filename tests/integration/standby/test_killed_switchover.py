"""A switchover whose process is killed at each of its steps, and run again until it is done."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from agent.core.rules.names import PROMOTED, SWITCHED
from tests.integration.standby.scene import HURRIED, VHOST, StandbyScene
from tests.lab.node import Node
from tests.lab.preloaded import Started
from tests.lab.proxy import Proxy
from tests.lab.user_program import depth
from tests.lab.waiting import DEADLINE, eventually

QUEUES: Final = {"q1": {}, "q2": {}, "q3": {"x-queue-type": "quorum"}, "q4": {"x-queue-type": "quorum"}}
CONSUMED: Final = 1_500
"""More than are taken at a time, hurried."""
KEPT: Final = 1_500
IN_FLIGHT: Final = 2_000
SLOWLY: Final = 150_000
"""Bytes a second from the source, so that its messages are moved for some seconds."""
STEP_WITHIN: Final = 240.0


class Killed:
    """Queues whose first messages were consumed at the source, and whose last ones wait there."""

    def __init__(self, standby: StandbyScene, to_source: Proxy) -> None:
        self.standby = standby
        self.to_source = to_source
        self.all = [f"{number:06}".ljust(150) for number in range(CONSUMED + KEPT)]

    def begin(self) -> None:
        standby, uri = self.standby, self.standby.source_node.uri("", port=self.to_source.port)
        standby.source_node.admin.vhost(VHOST)
        standby.source.exchange("orders", "fanout")
        for name, arguments in QUEUES.items():
            standby.source_node.admin.queue(VHOST, name, arguments=arguments)
            standby.source.bind(name=name, exchange="orders")
        standby.write({"uri": uri[: -len("/")]})
        standby.agent.start(HURRIED)
        standby.wait_in_step()
        standby.publish(self.all[:CONSUMED])
        for name in QUEUES:
            assert len(standby.source.take(CONSUMED, queue=name)) == CONSUMED
        standby.publish(self.all[CONSUMED:])
        standby.wait_depths(**dict.fromkeys(QUEUES, (KEPT, CONSUMED + KEPT)))
        self.to_source.throttle(SLOWLY)

    def kill_once(self, reached: Callable[[], bool]) -> None:
        """What is on its way meanwhile is seen before the process is gone, so it is a moment late. A connection that is
        lost on the slow way ends the switchover: it is repeated then, too."""
        process = self.standby.begin_switchover()

        def is_reached() -> bool:
            nonlocal process
            if self._ended(process):
                process = self.standby.begin_switchover()
            return reached() and not self._ended(process)

        eventually(is_reached, STEP_WITHIN, what="the step is reached")
        process.send_signal(signal.SIGKILL)
        assert process.wait(DEADLINE) == -signal.SIGKILL

    def repeated(self, name: str) -> int:
        """Asserts that nothing is lost; how many are there more than once, or were consumed at the source."""
        here, wanted = Counter(self.standby.here.take(0, queue=name)), Counter(self.all[CONSUMED:])
        assert self.standby.source.take(0, queue=name) == []
        assert not wanted - here
        return (here - wanted).total()

    def _ended(self, process: Started) -> bool:
        return process.poll() is not None

    def noted(self, name: str) -> Any:
        found = self.standby.node.admin.get("global-parameters")
        return next((each["value"] for each in found if each["name"] == name), None)

    @property
    def queues(self) -> list[dict[str, Any]]:
        found = self.noted(SWITCHED)
        return list(found["queues"]) if isinstance(found, dict) and "queues" in found else []


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_nothing_is_lost_wherever_it_is_killed(standby: StandbyScene, proxy_to: Callable[[Node | int], Proxy]) -> None:
    killed = Killed(standby, proxy_to(standby.source_node))
    killed.begin()
    output = standby.switchover
    steps: dict[str, Callable[[], bool]] = {
        "waiting": lambda: output.exists() and "waiting until nothing moves" in output.read_text(),
        "promoted": lambda: killed.noted(PROMOTED) is not None,
        "counted": lambda: bool(killed.queues),
        "moving": lambda: any(0 < depth(standby.source.uri, name) < KEPT for name in QUEUES),
        "moved": lambda: any(each["kept"] is not None for each in killed.queues),
        "taking": lambda: any(each["taking"] for each in killed.queues),
    }
    for reached in steps.values():
        killed.kill_once(reached)
    done = standby.run("promote", "-c", "agent.yaml", "--switchover", deadline=STEP_WITHIN)
    assert (done["promoted"], done["problems"]) == (True, [])
    repeated = {name: killed.repeated(name) for name in QUEUES}
    sys.stdout.write(f"killed at {len(steps)} steps: lost 0, repeated {repeated}\n")
    assert sum(repeated.values()) <= IN_FLIGHT
    assert {f"queue {name!r} in vhost {VHOST!r}" for name, number in repeated.items() if number} == set(done["inexact"])
