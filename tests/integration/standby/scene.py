"""What tests of a standby share: two brokers, one vhost of the same name, the agent, and the command."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.preloaded import Ran, Started
from tests.lab.waiting import DEADLINE, NeverHappenedError, eventually

VHOST: Final = "shop"
HURRIED: Final = "tests.integration.standby.hurried"
HURRIED_LESS: Final = "tests.integration.standby.hurried_less"
OLD_FIGURES: Final = 6.0
"""Seconds, hurried: a trim uses no figures of before."""
IN_STEP_WITHIN: Final = 2 * DEADLINE


@dataclass(frozen=True, slots=True)
class StandbyScene:
    lab: Lab
    directory: Path
    source_node: Node
    node: Node
    agent: Agent
    _begun: list[Started] = field(default_factory=list)

    @property
    def source(self) -> Site:
        return Site(self.source_node, VHOST)

    @property
    def here(self) -> Site:
        return Site(self.node, VHOST)

    def fill(self) -> None:
        """Two exchanges, one bound to the other, each with a queue; the second one is a quorum queue."""
        self.source_node.admin.vhost(VHOST)
        self.source.exchange("orders").exchange("audit", "fanout")
        self.source.queue("#", name="orders", exchange="orders")
        self.source_node.admin.queue(VHOST, "audit", arguments={"x-queue-type": "quorum"})
        self.source.bind(name="audit", exchange="audit")
        self.source_node.admin.bind(VHOST, "orders", "audit", "#", to_exchange=True)

    def write(self, origin: Mapping[str, Any] = MappingProxyType({}), *, name: str = "", **more: Any) -> None:
        """`origin` is what is unusual about the upstream, `name` that of the agent."""
        source = {"uri": self.source_node.uri("")[: -len("/")], "management": self.source_node.management_uri()}
        standby = {"of": "origin", "vhosts": {VHOST: None}, "keep": "5h"} | more
        agent = self.agent.settings(**({"name": name} if name else {}))
        self.agent.write(upstreams={"origin": source | dict(origin)}, standby=standby, agent=agent)

    def start(self) -> None:
        self.write()
        self.agent.start(HURRIED)

    def command(self, *arguments: str, deadline: float = 2 * DEADLINE) -> Ran:
        return self.lab.agents.run(
            ("standby", *arguments), cwd=self.agent.directory, environment={}, deadline=deadline, module=HURRIED
        )

    def run(self, *arguments: str, status: int = 0, deadline: float = 2 * DEADLINE) -> dict[str, Any]:
        ran = self.command(*arguments, "--format", "json", deadline=deadline)
        assert ran.status == status, ran
        assert "guest" not in ran.out + ran.err
        found: dict[str, Any] = json.loads(ran.out)
        return found

    def refused(self, *arguments: str) -> str:
        """What a command says that ends with status 4."""
        ran = self.command(*arguments)
        assert ran.status == 4, ran
        assert "guest:" not in ran.out + ran.err
        return ran.out + ran.err

    def begin_switchover(self, module: str = HURRIED) -> Started:
        """As a process of its own, which writes to `switchover`."""
        command = ("standby", "promote", "-c", str(self.agent.path), "--switchover", "--format", "json")
        self._begun.append(started := self.lab.agents.start(command, output=self.switchover, module=module))
        return started

    def end_switchovers(self) -> None:
        """What still runs of them is killed."""
        for started in self._begun:
            started.send_signal(signal.SIGKILL)
            started.wait(DEADLINE)

    def reverse(self) -> None:
        """The former source follows, without the binding that its link from the former standby would double."""
        assert self.agent.terminate() == 0
        admin, path = self.source_node.admin, ("bindings", VHOST, "e", "orders", "e", "audit")
        [bound] = admin.get(*path)
        admin.delete(*path, bound["properties_key"])
        ran = self.command("reverse", "-c", "agent.yaml", "--write", "reversed.yaml")
        assert ran.status == 0, ran
        self.agent.write_text((self.agent.directory / "reversed.yaml").read_text()).start(HURRIED)
        self.wait_in_step()

    @property
    def switchover(self) -> Path:
        return self.directory / "switchover.out"

    def status(self) -> dict[str, Any]:
        ran = self.command("status", "-c", "agent.yaml", "--format", "json")
        return dict(json.loads(ran.out)) if ran.status in {0, 4} and ran.out else {}

    def wait_in_step(self) -> dict[str, Any]:
        def is_in_step() -> dict[str, Any]:
            assert self.agent.alive, self.agent.log.read_text()
            found = self.status()
            return found if found.get("in_step") else {}

        try:
            return eventually(is_in_step, IN_STEP_WITHIN, what="in step")
        except NeverHappenedError as error:
            error.add_note(str(self.status().get("why_not")))
            raise

    def depths(self) -> dict[str, tuple[int | None, int | None]]:
        return {each["queue"]: (each["source"], each["here"]) for each in self.status().get("queues", ())}

    def wait_depths(self, **wanted: tuple[int, int]) -> None:
        eventually(lambda: self.depths() == wanted, what=f"{wanted}, not {self.depths()}")

    def publish(self, bodies: Iterable[str]) -> None:
        self.source.publish(bodies, exchange="orders")
