"""A compressed hour of a standby: users at its source, and faults on its way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.integration.standby.crowd import Accounted, Crowd
from tests.integration.standby.scene import HURRIED_LESS, VHOST, StandbyScene
from tests.lab.node import Node
from tests.lab.proxy import Proxy

SILENT_FOR: Final = 6.0
BETWEEN_DEATHS: Final = 4.0


class Hour:
    """A standby whose agent reaches its source through a network that may be bad; users of the source have another."""

    def __init__(self, standby: StandbyScene, to_source: Proxy, to_dying: Proxy) -> None:
        self.standby = standby
        self.to_source = to_source
        self._to_dying = to_dying
        self.crowd = Crowd(standby.source, to_dying)

    def begin(self) -> None:
        standby, uri = self.standby, self.standby.source_node.uri("", port=self.to_source.port)
        standby.source_node.admin.vhost(VHOST)
        self.crowd.build()
        standby.write({"uri": uri[: -len("/")], "probe": 1, "reconnect-delay": 1}, trim={"after": "5m"})
        self.start_agent()
        standby.wait_in_step()
        self.crowd.start()

    def start_agent(self) -> None:
        self.standby.agent.start(HURRIED_LESS)

    def silence(self) -> None:
        self.to_source.blackhole()
        time.sleep(SILENT_FOR)
        self.to_source.restore()

    def kill_agent(self) -> None:
        self.standby.agent.kill()
        time.sleep(1)
        self.start_agent()

    def lasts(self, seconds: float, *faults: Callable[[], object]) -> None:
        """Faults come one after another in its first quarter; consumers die all the time."""
        begins, waiting = time.monotonic(), list(faults)
        while (passed := time.monotonic() - begins) < seconds:
            if waiting and passed > seconds / 4 * (1 - len(waiting) / (len(faults) + 1)):
                waiting.pop(0)()
            time.sleep(BETWEEN_DEATHS)
            self._to_dying.cut()

    def account(self, node: Node) -> Accounted:
        """By what is in the queues there."""
        site = self.standby.here if node is self.standby.node else self.standby.source
        there = {name: [int(body) for body in site.take(0, queue=name)] for name in self.crowd.fates}
        return self.crowd.account(there)
