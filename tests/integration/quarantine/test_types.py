"""The quarantine is as safe as the queue that a message came from, whoever declared that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, X, federated
from tests.integration.quarantine.scene import LARGE, QUARANTINE, publish_one, quarantined
from tests.integration.queue_links import scene as queue_links
from tests.integration.shovels.shoveling import links_of, running, shovel
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import eventually

QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def without_quorum_queues(lab: Lab) -> Iterator[Node]:
    """As after an upgrade from a release that had none, until their feature flag is enabled."""
    node = lab.node("aged")
    node.environment["RABBITMQ_FEATURE_FLAGS"] = ""
    yield node.start()
    node.stop()


def kind_of(site: Site) -> str:
    quarantined(site, 1)
    return str(site.node.admin.get("queues", site.vhost, QUARANTINE)["type"])


def test_beside_the_sources_of_shovels(agent_of: AgentOf, here: Site, there: Site, site_on: SiteOn) -> None:
    """Queues that they found; where the type isn't known it is the safer one."""
    expected: dict[str, dict[str, Any]] = {"quorum": QUORUM, "classic": {}, "unknown": {"x-max-length": 1_000}}
    sources = {kind: site_on(there.node) for kind in expected}
    for kind, arguments in expected.items():
        sources[kind].node.admin.queue(sources[kind].vhost, "src", arguments=arguments)
    defined = {kind: shovel(source, here, dest_queue=kind) for kind, source in sources.items()}
    there.exchange("x")
    defined["own"] = shovel(there, here, src_exchange="x", src_exchange_key="#")
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_running(len(defined))
    for source in sources.values():
        publish_one(source, "", "src", LARGE)
    kinds = {kind: kind_of(source) for kind, source in sources.items()}
    assert kinds == {"quorum": "quorum", "classic": "classic", "unknown": "quorum"}

    publish_one(there, "x", "k", LARGE)  # it goes with the queue of the shovel's own when the refusal shows the limit
    eventually(
        lambda: (links_of(agent)["own"]["reconnects"], links_of(agent)["own"]["status"]) == (1, "running"),
        what="it runs again",
    )
    publish_one(there, "x", "k", LARGE)
    assert kind_of(there) == "classic"
    assert agent.terminate() == 0


def test_beside_upstreams(agent_of: AgentOf, here: Site, there: Site, site_on: SiteOn) -> None:
    """As the queue upstream is, whatever that downstream is; and as the queue of an exchange's link."""
    pairs = {"classic": ("quorum", here, there), "quorum": ("classic", site_on(here.node), site_on(there.node))}
    for kind, (other, below, above) in pairs.items():
        queue_links.declare(below, arguments={"x-queue-type": other})
        queue_links.declare(above, arguments={"x-queue-type": kind})
    down, up = site_on(here.node).exchange().queue("#"), site_on(there.node).exchange()
    sections = {below.vhost: queue_links.federated(above) for _, below, above in pairs.values()}
    sections[down.vhost] = federated(up, **{"queue-type": "quorum"})
    agent = agent_of(here.node).write(sections).start()
    agent.wait_running(len(sections))
    up.wait_bound("#")
    publish_one(up, X, "k", LARGE)
    assert kind_of(up) == "quorum"
    for kind, (_, below, above) in pairs.items():
        with queue_links.User(below) as user:
            publish_one(above, "", queue_links.Q, "first")
            user.wait(1)
            publish_one(above, "", queue_links.Q, LARGE)
            assert kind_of(above) == kind
    assert agent.terminate() == 0


@pytest.mark.thorough
def test_a_broker_without_quorum_queues_gets_a_classic_one(
    agent_of: AgentOf, here: Site, without_quorum_queues: Node, site_on: SiteOn
) -> None:
    there = site_on(without_quorum_queues)
    there.node.admin.queue(there.vhost, "src", arguments={"x-max-length": 1_000})
    agent = running(agent_of(here.node), here, shovel(there, here))
    publish_one(there, "", "src", LARGE)
    assert kind_of(there) == "classic"
    assert agent.terminate() == 0


@pytest.mark.versions
def test_the_default_type_of_a_vhost_changes_nothing(agent_of: AgentOf, lab: Lab, here: Site, site_on: SiteOn) -> None:
    """It would be a quorum queue that drops what was looked at twenty times."""
    there = site_on(lab.shared("broker", release="trixie"))
    there.node.admin.put("vhosts", there.vhost, body={"default_queue_type": "quorum"})
    there.node.admin.queue(there.vhost, "src", arguments={"x-queue-type": "classic"})
    agent = running(agent_of(here.node), here, shovel(there, here))
    publish_one(there, "", "src", LARGE)
    assert kind_of(there) == "classic"
    assert agent.terminate() == 0
