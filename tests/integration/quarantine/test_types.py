"""The quarantine is as safe as the queue that a message came from, whoever declared that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.quarantine.scene import LARGE, QUARANTINE, only, publish_one, quarantined
from tests.integration.queue_links import scene as queue_links
from tests.integration.shovels.shoveling import running, shovel
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(QUORUM, "quorum"), ({}, "classic"), ({"x-max-length": 1_000}, "quorum")],
    ids=["quorum", "classic", "unknown, so the safer one"],
)
def test_of_a_queue_that_a_shovel_found(
    agent_of: AgentOf, here: Site, there: Site, arguments: dict[str, Any], expected: str
) -> None:
    there.node.admin.queue(there.vhost, "src", arguments=arguments)
    agent = running(agent_of(here.node), here, shovel(there, here))
    publish_one(there, "", "src", LARGE)
    assert kind_of(there) == expected
    assert agent.terminate() == 0


def test_of_the_queue_that_a_shovel_makes_for_itself(agent_of: AgentOf, here: Site, there: Site) -> None:
    there.exchange("x")
    agent = running(agent_of(here.node), here, shovel(there, here, src_exchange="x", src_exchange_key="#"))
    publish_one(there, "x", "k", LARGE)  # it goes with the queue when the refusal shows the limit
    eventually(lambda: only(agent)["reconnects"] == 1 and only(agent)["status"] == "running", what="it runs again")
    publish_one(there, "x", "k", LARGE)
    assert kind_of(there) == "classic"
    assert agent.terminate() == 0


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_of_a_queue_upstream_that_is_of_another_type_downstream(
    agent_of: AgentOf, here: Site, there: Site, kind: str
) -> None:
    other = {"classic": "quorum", "quorum": "classic"}[kind]
    queue_links.declare(here, arguments={"x-queue-type": other})
    queue_links.declare(there, arguments={"x-queue-type": kind})
    agent = agent_of(here.node).write({here.vhost: queue_links.federated(there)}).start()
    with queue_links.User(here) as user:
        publish_one(there, "", queue_links.Q, "first")
        user.wait(1)
        publish_one(there, "", queue_links.Q, LARGE)
        assert kind_of(there) == kind
    assert agent.terminate() == 0


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
