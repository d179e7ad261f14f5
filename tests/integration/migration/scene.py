"""What tests of `migrate` share: the command, its file, and what both brokers have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.lab.admin import AdminError
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.preloaded import COMMAND, Ran, Started
from tests.lab.waiting import DEADLINE

FILE: Final = "migration.yaml"
HURRIED: Final = "tests.integration.migration.hurried"
SCRATCH: Final = "federation-agent: rehearsal "


@dataclass(frozen=True, slots=True)
class MigrationScene:
    """`vhost` is on the source, and made on the target by what is tested."""

    lab: Lab
    directory: Path
    vhost: str
    source: Node
    target: Node
    document: dict[str, Any] = field(default_factory=dict)

    def write(self, **selection: Any) -> None:
        self.document["vhosts"] = {self.vhost: selection}
        (self.directory / FILE).write_text(yaml.safe_dump(self.document))

    def run(self, step: str, *arguments: str, status: int = 0, module: str = COMMAND) -> dict[str, Any]:
        ran = self.ran(step, "--format", "json", *arguments, module=module)
        assert ran.status == status, ran
        assert "guest:" not in ran.out + ran.err, "a login is shown"
        found: dict[str, Any] = json.loads(ran.out)
        return found

    def ran(self, step: str, *arguments: str, module: str = COMMAND) -> Ran:
        command = ("migrate", step, FILE, *arguments)
        return self.lab.agents.run(command, cwd=self.directory, environment={}, deadline=2 * DEADLINE, module=module)

    def status(self, *arguments: str, status: int = 4) -> dict[str, Any]:
        return self.run("status", *arguments, status=status, module=HURRIED)

    def start(self, *arguments: str, output: Path, module: str = COMMAND) -> Started:
        command = ["migrate", *arguments, str(self.directory / FILE)]
        return self.lab.agents.start(command, output=output, module=module)

    def fill(self, queues: int = 3) -> None:
        """Exchanges, queues, bindings and a policy of every kind that all releases take."""
        admin = self.source.admin
        admin.exchange(self.vhost, "x", arguments={"alternate-exchange": "ae"})
        admin.exchange(self.vhost, "ae", "fanout", internal=True)
        admin.exchange(self.vhost, "h", "headers", auto_delete=True)
        for number in range(queues):
            admin.queue(self.vhost, f"q{number}", arguments={"x-max-length": 10, "x-message-ttl": 60_000})
            admin.bind(self.vhost, "x", f"q{number}", f"k.{number}.#")
        admin.queue(self.vhost, "a/ö %#?", auto_delete=True)
        admin.queue(self.vhost, "quorum", arguments={"x-queue-type": "quorum", "x-delivery-limit": 5})
        admin.queue(self.vhost, "stream", arguments={"x-queue-type": "stream"})
        admin.bind(self.vhost, "h", "a/ö %#?", arguments={"x-match": "all", "n": 1, "t": True, "s": "x", "f": 1.5})
        admin.bind(self.vhost, "x", "ae", "to.exchange", to_exchange=True)
        admin.bind(self.vhost, "amq.fanout", "quorum")
        admin.policy(self.vhost, "limits", "^q", definition={"max-length": 100}, apply_to="queues", priority=3)

    def names(self, node: Node, kind: str) -> set[str]:
        return {each["name"] for each in node.admin.get(kind, self.vhost) if not each["name"].startswith("amq.")}

    def has(self, node: Node, kind: str, name: str) -> bool:
        try:
            node.admin.get(kind, self.vhost, name)
        except AdminError:
            return False
        return True

    def is_there(self, node: Node) -> bool:
        return any(each["name"] == self.vhost for each in node.admin.get("vhosts"))

    def bindings(self, node: Node) -> list[tuple[Any, ...]]:
        found = node.admin.get("bindings", self.vhost)
        return sorted(
            (each["source"], each["destination"], each["routing_key"], json.dumps(each["arguments"], sort_keys=True))
            for each in found
            if each["source"]
        )

    def scratches(self) -> list[str]:
        return [each["name"] for each in self.target.admin.get("vhosts") if each["name"].startswith(SCRATCH)]


@contextmanager
def scene(lab: Lab, directory: Path, vhost: str, nodes: tuple[Node, Node]) -> Iterator[MigrationScene]:
    ends = [{"uri": node.uri(), "management": node.management_uri()} for node in nodes]
    found = MigrationScene(lab, directory, vhost, *nodes, {"source": ends[0], "target": ends[1]})
    with nodes[0].admin.temporary_vhost(vhost):
        found.write()
        try:
            yield found
        finally:
            with suppress(AdminError):
                nodes[1].admin.delete_vhost(vhost)
