"""What the tests of `plan` ask and look at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent.core.links.plan import Action, PlannedLink
from agent.definitions.sources.load import load_configuration
from agent.runtime.plan_inputs import PlanInputs, read_plan_inputs
from tests.lab.admin import AdminError
from tests.lab.node import Node
from tests.lab.waiting import eventually

Naming = Callable[[str], str]
Sections = Mapping[str, Any]
ORIGIN = "origin"
FEDERATE: Sections = {
    "policies": {"federate": {"pattern": "^x", "definition": {"federation-upstream-set": "all"}}},
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A downstream and an upstream with a vhost of one name on both, and a place for a configuration."""

    directory: Path
    here: Node
    there: Node
    vhost: str

    @property
    def downstream(self) -> dict[str, Any]:
        return {"uri": f"amqp://127.0.0.1:{self.here.amqp_port}", "management": self.here.management_uri()}

    @property
    def queue(self) -> str:
        """The upstream queue of the links of exchange x."""
        return f"federation: x -> {self.here.cluster_name}"

    def origin(self, **settings: object) -> dict[str, Any]:
        return {"upstreams": {ORIGIN: {"uri": self.there.uri(self.vhost)} | settings}}

    def write(self, of_vhost: Sections, **sections: Any) -> Path:
        """A configuration with these things for the vhost, in further sections."""
        path = self.directory / "agent.yaml"
        vhosts = {"vhosts": {self.vhost: dict(of_vhost)}} if of_vhost else {}
        path.write_text(yaml.safe_dump({"downstream": self.downstream} | vhosts | sections))
        return path

    async def plan(self, of_vhost: Sections, **sections: Any) -> PlanInputs:
        """What `plan` finds with that configuration."""
        return await read_plan_inputs(load_configuration(str(self.write(of_vhost, **sections)), environment={}))

    async def plan_link(self, of_vhost: Sections, **sections: Any) -> PlannedLink:
        """The same for the one link of the vhost."""
        return only_link(await self.plan(of_vhost, **sections), self.vhost)


def of_vhost(found: PlanInputs, vhost: str) -> list[PlannedLink]:
    return [planned for planned in found.plan.links if planned.link.vhost == vhost]


def only_link(found: PlanInputs, vhost: str) -> PlannedLink:
    [planned] = of_vhost(found, vhost)
    return planned


def told(actions: tuple[Action, ...]) -> list[tuple[str, str, str]]:
    return [(str(action.verb), action.kind, action.name) for action in actions]


def snapshot(node: Node, vhost: str, *, is_shared: bool = False) -> dict[str, Any]:
    """Everything that is defined on the broker, or in the vhost, and the names of what stands in the vhost besides."""
    definitions: dict[str, Any] = node.admin.get("definitions", *([vhost] if is_shared else []))
    standing = {kind: sorted(each["name"] for each in node.admin.get(kind, vhost)) for kind in ("exchanges", "queues")}
    return {"standing": standing} | {
        kind: sorted(found, key=repr) for kind, found in definitions.items() if isinstance(found, list)
    }


def wait_until_left(*nodes: Node) -> None:
    """Until no broker knows of a connection of the agent's."""

    def connected() -> list[str]:
        connections = [each for node in nodes for each in node.admin.get("connections")]
        return [each["name"] for each in connections if each["client_properties"].get("product") == "federation-agent"]

    eventually(lambda: not connected(), what="the agent's connections are gone")


def wait_for_consumer(node: Node, vhost: str, queue: str) -> None:
    eventually(
        lambda: node.admin.get("queues", vhost, queue).get("consumers"),
        what=f"a consumer on {queue}",
        ignoring=AdminError,
    )


def messages_in(node: Node, vhost: str, queue: str) -> int:
    """As statistics tell it, so a second late."""
    found: int = node.admin.get("queues", vhost, queue).get("messages", 0)
    return found
