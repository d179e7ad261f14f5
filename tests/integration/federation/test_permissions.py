"""Each kind of link with exactly the permissions that docs/permissions.md lists, and with one fewer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from aio_pika.abc import HeadersType

from agent.runtime.replicas.replica import NO_ACCESS_FOR
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, policies
from tests.integration.federation.test_api import ask
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import DEADLINE, eventually
from tests.tiers import thorough

DOCUMENT: Final = Path(__file__).parents[3] / "docs/permissions.md"
ROW: Final = re.compile(r"^\| (\w+) \| (configure|write|read) \| `([^`]+)` \|", re.MULTILINE)
NOTHING: Final = "^$"
PASSWORD: Final = "least-password"
WITHOUT_LEASES = NO_ACCESS_FOR + 30  # the user has no access to the vhost where agents share links
TOO_MANY_HEADERS: Final[HeadersType] = {"x": "y" * (131_072 - 100)}  # of which a frame is full without the link's entry


@dataclass(frozen=True, slots=True)
class Needed:
    broker: str
    permission: str
    on: str

    @property
    def pattern(self) -> str:
        name = self.on.replace("X", "fed.x") if self.on != "Q" else "q"
        return "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", name))

    @property
    def named(self) -> str:
        return self.on.replace("X", "fed.x").replace("Q", "q").split("…")[0].strip("'")


def rows(section: str, part: str = "") -> list[Needed]:
    """What is needed, or the table under the words that begin a part of the section."""
    text = DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    parts = {found.split("\n")[0]: found for found in re.split(r"\n(?=Further permissions|Brokers of 4\.3)", text)}
    first, *_ = parts.values()
    found = next((each for head, each in parts.items() if head.startswith(part)), "") if part else first
    return [Needed(*row) for row in ROW.findall(found)]


def granted(needed: Iterable[Needed], *brokers: str) -> dict[str, str]:
    found: dict[str, list[str]] = {"configure": [], "write": [], "read": []}
    for each in needed:
        if each.broker in brokers:
            found[each.permission].append(each.pattern)
    return {permission: f"^({'|'.join(patterns)})$" if patterns else NOTHING for permission, patterns in found.items()}


@dataclass
class Variant:
    """A link between vhosts of its own, whose users may do what is needed but for `missing`."""

    here: Site
    there: Site
    without: Needed | None

    @property
    def missing(self) -> Needed:
        assert self.without is not None
        return self.without


@dataclass
class Scene:
    agent_of: AgentOf
    site_on: SiteOn
    user: str
    brokers: tuple[Node, Node]
    is_newer: bool = False  # than 4.2

    def newer(self, section: str) -> list[Needed]:
        return rows(section, "Brokers of 4.3") if self.is_newer else []

    def variants(self, needed: list[Needed], spared: list[Needed]) -> list[Variant]:
        """All that is needed, then one fewer each time."""
        here, there = self.brokers
        for node in self.brokers:
            node.admin.user(self.user, PASSWORD)
        made = []
        for missing in (None, *spared):
            variant = Variant(self.site_on(here), self.site_on(there), missing)
            left = [each for each in needed if each is not missing]
            here.admin.permissions(variant.here.vhost, self.user, **granted(left, "downstream", "destination"))
            there.admin.permissions(variant.there.vhost, self.user, **granted(left, "upstream", "source"))
            made.append(variant)
        return made

    def run(self, sections: Mapping[str, Mapping[str, Any]]) -> Agent:
        downstream = self.brokers[0]
        return self.agent_of(downstream, uri=downstream.uri("/", self.user, PASSWORD)).write(sections).start()

    def origin(self, variant: Variant) -> dict[str, Any]:
        uri = variant.there.node.uri(variant.there.vhost, self.user, PASSWORD)
        return {"upstreams": {"origin": {"uri": uri, "reconnect-delay": 1}}}


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, agent_of: AgentOf, site_on: SiteOn, name: Callable[[str], str], lab: Lab
) -> Scene:
    """Both brokers of this machine's release, or of a newer one where a test asks for it."""
    release = getattr(request, "param", None)
    brokers = lab.shared("broker", release=release), lab.shared("second", release=release)
    return Scene(agent_of, site_on, name("least"), brokers, is_newer=release is not None)


def wait_refused(agent: Agent, variant: Variant, user: str) -> None:
    """Until the link shows which permission is missing, on what and for whom."""
    missing = variant.missing
    vhost = variant.there.vhost if missing.broker in {"upstream", "source"} else variant.here.vhost
    words = f"{missing.permission} access to ", f"'{missing.named}", f"in vhost '{vhost}' refused for user '{user}'"

    def shown() -> bool:
        errors = [
            str(each.get("error")) for each in agent.logged("link changed") if each["vhost"] == variant.here.vhost
        ]
        return any(all(word in error for word in words) for error in errors)

    eventually(shown, DEADLINE, what=f"{words} in the log:\n{agent.log.read_text()[-4000:]}")


def note_of(agent: Agent, variant: Variant) -> str:
    def noted() -> list[str]:
        return [str(each["note"]) for each in agent.logged("link noted") if each["vhost"] == variant.here.vhost]

    return eventually(noted, what="the link has a note")[0]


def test_exchange_links_their_probes_and_their_quarantine(scene: Scene) -> None:
    needed, further = rows("Federated exchanges"), rows("Federated exchanges", "Further permissions")
    links = [*needed, *further]
    probes, quarantine = rows("Probes"), rows("Quarantine")
    plain, probing = scene.variants(links, links), scene.variants([*links, *probes], probes)
    setting_aside = scene.variants([*links, *quarantine], quarantine)
    sections: dict[str, Any] = {}
    for each in (*plain, *probing, *setting_aside):
        each.here.exchange().queue("k")
        each.there.exchange()
        sections[each.here.vhost] = scene.origin(each) | {"policies": policies()}
    for each in probing:
        sections[each.here.vhost]["upstreams"]["origin"]["probe"] = 1
    agent = scene.run(sections)
    check_links(agent, plain, further, scene.user)
    check_probes(agent, probing, scene.user)
    check_quarantine(agent, setting_aside, scene.user)


def check_links(agent: Agent, variants: list[Variant], further: list[Needed], user: str) -> None:
    """Without what is needed a link says so; without what is useful it works all the same, and has a note."""
    complete, *rest = variants
    for each in variants:
        if each.without in (None, *further) or each.missing.broker == "downstream":
            each.there.wait_bound("k")
            each.there.publish(["m"])
    assert complete.here.take(1) == ["m"]
    assert not [each for each in agent.logged("link noted") if each["vhost"] == complete.here.vhost]
    for each in rest:
        if each.missing not in further:
            wait_refused(agent, each, user)
            continue
        assert each.here.take(1) == ["m"]
        assert f"{each.missing.permission} access to exchange '{each.missing.named}" in note_of(agent, each)


def check_probes(agent: Agent, variants: list[Variant], user: str) -> None:
    complete, *rest = variants
    agent.wait_for("running", (complete.here.vhost, "fed.x", "origin"))
    eventually(lambda: shown(agent, complete)["last_probe"], what="a probe has come through")
    for each in rest:
        wait_refused(agent, each, user)


def check_quarantine(agent: Agent, variants: list[Variant], user: str) -> None:
    complete, *rest = variants
    for each in variants:
        each.there.wait_bound("k")
        each.there.publish(["m"], headers=TOO_MANY_HEADERS)
    eventually(lambda: shown(agent, complete)["quarantined"] == 1, what="it is in quarantine")
    for each in rest:
        words = f"{each.missing.permission} access to ", f"'{each.missing.named}", f"refused for user '{user}'"
        told = partial(lambda each, words: all(word in str(shown(agent, each)["error"]) for word in words), each, words)
        eventually(told, what=f"the error has {words}")


def shown(agent: Agent, variant: Variant) -> dict[str, Any]:
    return next(each for each in ask(agent, "/api/links") if each["vhost"] == variant.here.vhost)


@pytest.mark.parametrize("scene", [thorough(None), pytest.param("sid", marks=pytest.mark.versions)], indirect=True)
def test_queue_links_and_shovels(scene: Scene) -> None:
    of_queues, of_shovels = rows("Federated queues"), rows("Shovels")
    links = scene.variants([*of_queues, *scene.newer("Federated queues")], of_queues)
    shovels = scene.variants([*of_shovels, *scene.newer("Shovels")], of_shovels)
    for each in (*links, *shovels):
        each.here.node.admin.queue(each.here.vhost, "q")
        each.there.node.admin.queue(each.there.vhost, "q")
        each.there.publish(["m"], "q", exchange="")

    def shovel(variant: Variant) -> dict[str, Any]:
        source = variant.there.node.uri(variant.there.vhost, scene.user, PASSWORD)
        destination = variant.here.node.uri(variant.here.vhost, scene.user, PASSWORD)
        return {"src-uri": source, "src-queue": "q", "dest-uri": destination, "dest-queue": "q", "reconnect-delay": 1}

    policy = {"pattern": "^q$", "apply-to": "queues", "definition": {"federation-upstream": "origin"}}
    agent = scene.run(
        {each.here.vhost: scene.origin(each) | {"policies": {"p": policy}} for each in links}
        | {each.here.vhost: {"shovels": {"s": shovel(each)}} for each in shovels}
    )
    for complete in (links[0], shovels[0]):
        assert complete.here.take(1, deadline=WITHOUT_LEASES) == ["m"], agent.log.read_text()
    for each in links[1:]:
        assert each.here.take(1, deadline=2) == []  # messages move while a consumer waits for them
        wait_refused(agent, each, scene.user)
    for each in shovels[1:]:
        wait_refused(agent, each, scene.user)
