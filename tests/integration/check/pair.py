"""Two brokers, a configuration, and what `check` finds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from agent.check.configuration import check
from agent.check.findings import Finding, FindingLevel, Topic
from agent.core.addresses.uri import parse_http
from agent.core.permissions import Permission
from agent.definitions.sources.load import load_configuration
from tests.lab.node import Node
from tests.lab.waiting import eventually

FEDERATE: Final = {"federate": {"pattern": "^x", "definition": {"federation-upstream-set": "all"}}}
ORIGIN: Final = "origin"
PASSWORD: Final = "the-password-of-nobody"


@dataclass(frozen=True, slots=True)
class Pair:
    """A downstream and an upstream with a vhost of one name on both, exchange `x` in it, and a queue bound here."""

    directory: Path
    here: Node
    there: Node
    vhost: str

    def upstream(self, uri: str = "", **settings: object) -> dict[str, Any]:
        return {"upstreams": {ORIGIN: {"uri": uri or self.there.uri(self.vhost)} | settings}, "policies": FEDERATE}

    def write(self, of_vhost: Mapping[str, Any], **sections: Any) -> Path:
        path = self.directory / "agent.yaml"
        downstream = {"uri": self.here.uri("/"), "management": self.here.management_uri()}
        document = {
            "agent": {"http": {"listen": "127.0.0.1:1"}},
            "downstream": downstream,
            "vhosts": {self.vhost: dict(of_vhost)},
        } | sections
        path.write_text(yaml.safe_dump(document))
        return path

    async def check(
        self, of_vhost: Mapping[str, Any] | None = None, *, clock: Any = None, with_api: bool = True, **sections: Any
    ) -> list[Finding]:
        path = self.write(self.upstream() if of_vhost is None else of_vhost, **sections)
        configuration = load_configuration(str(path), environment={})
        apis = {ORIGIN: [parse_http(self.there.management_uri())]} if with_api else {}
        found = await check(configuration, apis=apis, **({} if clock is None else {"clock": clock}))
        return list(found.findings)

    def user(self, node: Node, name: str, **granted: str) -> str:
        """A user who may do all but what `granted` names otherwise; the URI."""
        node.admin.user(name, PASSWORD)
        node.admin.permissions(self.vhost, name, **granted)
        return node.uri(self.vhost, name, PASSWORD)


@contextmanager
def memory_alarm(node: Node) -> Iterator[None]:
    """One that the HTTP API shows, which it does a second later."""

    def shows_it(*, expected: bool) -> bool:
        return all(each.get("mem_alarm") is expected for each in node.admin.get("nodes"))

    node.limit_memory("1")
    try:
        eventually(lambda: shows_it(expected=True), what="the HTTP API shows the alarm")
        yield
    finally:
        node.limit_memory("2GB")
        eventually(lambda: shows_it(expected=False), what="the HTTP API shows that the alarm is over")


def problems(findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.level is not FindingLevel.NOTE]


def everything_but(permission: Permission, pattern: str) -> dict[str, str]:
    return {each.value: pattern if each is permission else ".*" for each in Permission}


def only(findings: list[Finding], topic: Topic, level: FindingLevel = FindingLevel.WARNING) -> Finding:
    [found] = [each for each in problems(findings) if each.topic is topic]
    assert found.level is level, found
    return found
