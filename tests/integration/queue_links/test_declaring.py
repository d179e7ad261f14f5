"""The queue upstream that a link declares where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import Q, User, declare, federated, link_of, queue
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.user_program import numbered, times
from tests.lab.waiting import eventually

BrokerOn = Callable[..., Node]
SID = "sid"
RELEASES = [None, pytest.param(SID, marks=pytest.mark.versions)]
TRANSIENT = "work transient"
ATTRIBUTES = ("durable", "auto_delete", "exclusive", "type")


def attributes(site: Site, name: str) -> dict[str, Any]:
    """Some brokers list the argument for classic queues, too."""
    found = site.node.admin.get("queues", site.vhost, name)
    return {key: found[key] for key in ATTRIBUTES} | {"arguments": {"x-queue-type": "classic"} | found["arguments"]}


@pytest.mark.parametrize("release", RELEASES)
def test_a_missing_queue_is_declared_like_the_downstreams(
    agent_of: AgentOf, site_on: SiteOn, here: Site, broker_on: BrokerOn, release: str | None
) -> None:
    there = site_on(broker_on(release))
    declared: dict[str, dict[str, Any]] = {
        "work": {},
        "work expires": {"arguments": {"x-expires": 3_600_000, "x-message-ttl": 60_000, "x-max-priority": 4}},
        "work auto": {"auto_delete": True},
        "work quorum": {"arguments": {"x-queue-type": "quorum", "x-delivery-limit": 7}},
        "work transient": {"durable": False},
        "work transient 2": {"durable": False},
        "work limited": {"arguments": {"x-max-length": 9, "x-overflow": "reject-publish", "x-queue-mode": "lazy"}},
    }
    for name, flags in declared.items():
        declare(here, name=name, **flags)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", *(queue(here, name) for name in declared))
    for name in declared:
        assert attributes(there, name) == attributes(here, name), name


@pytest.mark.versions
def test_a_broker_that_refuses_transient_queues(agent_of: AgentOf, here: Site, lab: Lab, site_on: SiteOn) -> None:
    """It closes the connection over one: no other link may lose its own by that."""
    conf = ("deprecated_features.permit.transient_nonexcl_queues = false",)
    there = site_on(lab.shared("durable", release=SID, conf=conf))
    declare(here)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here))
    declare(here, name=TRANSIENT, durable=False)
    agent.wait_for("invalid", queue(here, TRANSIENT))
    assert "declare it upstream as durable" in str(link_of(agent, TRANSIENT)["error"])
    there.publish(bodies := numbered(5), Q, exchange="")
    with User(here) as user:
        user.wait(5)
    assert user.taken == bodies
    assert agent.history(*queue(here)).count("running") == 1


def test_a_queue_with_auto_delete_keeps_its_messages_while_there_are_consumers(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """Cancelling would delete it with all that waits there, so a link takes everything once it consumes."""
    declare(here, there, auto_delete=True)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here))
    there.publish(numbered(500), Q, exchange="")
    with User(here, prefetch=1, pause=0.002) as user:
        user.wait(100)
        there.publish(numbered(50, start=500), Q, exchange="")
        assert times(user.wait(550)) == dict.fromkeys(numbered(550), 1)
    eventually(lambda: not agent.links(), what="the link ends with its queue")
