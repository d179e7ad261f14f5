"""Messages move to where consumers are."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent, Named
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import (
    NO_CONSUMERS,
    Q,
    User,
    declare,
    federated,
    queue,
    upstream_consumers,
    wait_error,
)
from tests.lab import user_program
from tests.lab.node import Node
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

BrokerOn = Callable[..., Node]
SID = "sid"
RELEASES = [None, pytest.param(SID, marks=pytest.mark.versions)]
CLASSIC, QUORUM, INTERNAL = "work.classic", "work.quorum", "work.internal"
UNDER = {
    "queues": [CLASSIC, QUORUM],
    "classic_queues": [CLASSIC],
    "quorum_queues": [QUORUM],
    "all": [CLASSIC, QUORUM],
    "exchanges": [],
}


@pytest.mark.parametrize("release", RELEASES)
def test_messages_move_only_where_a_consumer_is(
    agent_of: AgentOf, site_on: SiteOn, broker_on: BrokerOn, there: Site, release: str | None
) -> None:
    here = site_on(broker_on(release))
    declare(here)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here))
    wait_error(agent, NO_CONSUMERS)
    there.publish(bodies := numbered(50), Q, exchange="")  # the queue was declared upstream
    time.sleep(1)
    assert user_program.depth(there.uri, Q) == 50
    assert upstream_consumers(there) == 0
    with User(here) as user:
        assert user.wait(50) == bodies
        eventually(lambda: upstream_consumers(there) == 1, what="the link consumes")
    eventually(lambda: upstream_consumers(there) == 0, what="the link has cancelled")
    there.publish(numbered(10), Q, exchange="")
    time.sleep(0.5)
    assert user_program.depth(there.uri, Q) == 10
    wait_error(agent, NO_CONSUMERS)
    with User(here) as user:
        user.wait(10)
    assert agent.terminate() == 0
    assert agent.logged("unexpected error") == []


@pytest.mark.parametrize("release", RELEASES)
def test_policies_for_some_kinds_of_queues(
    agent_of: AgentOf, site_on: SiteOn, broker_on: BrokerOn, there: Site, release: str | None
) -> None:
    """Also those that brokers before 4.0 refuse. Nothing upstream is deleted when a policy takes in less."""
    here = site_on(broker_on(release))
    declare(here, name=CLASSIC, arguments={"x-queue-type": "classic"})
    declare(here, name=QUORUM, arguments={"x-queue-type": "quorum"})
    declare(here, name=INTERNAL, arguments={"x-internal-purpose": "federation"})
    agent = agent_of(here.node)
    for apply_to, names in UNDER.items():
        agent.write({here.vhost: federated(there, apply_to=apply_to)})
        if agent.alive:
            agent.signal(signal.SIGHUP)
        else:
            agent.start()
        expected = {queue(here, name): "running" for name in names}
        eventually(lambda: statuses(agent) == expected, what=f"{apply_to} federates {names}")  # noqa: B023 - at once
    assert {each["name"] for each in there.node.admin.get("queues", there.vhost)} == {CLASSIC, QUORUM}


def test_several_upstreams_by_a_pattern(agent_of: AgentOf, site_on: SiteOn, here: Site, second_broker: Node) -> None:
    """One link each, with the name that each upstream has for the queue."""
    sites = {f"site{number}": site_on(second_broker) for number in range(3)}
    for name, site in sites.items():
        declare(site, name=f"of {name}")
    declare(here)
    upstreams = {name: {"uri": site.uri, "queue": f"of {name}"} for name, site in sites.items()}
    definition = {"federation-upstream-pattern": "^site[12]$"}
    policies = {"federate": {"pattern": "^work", "apply-to": "queues", "definition": definition}}
    agent = agent_of(here.node).write({here.vhost: {"upstreams": upstreams, "policies": policies}}).start()
    agent.wait_for("running", queue(here, upstream="site1"), queue(here, upstream="site2"))
    for name, site in sites.items():
        site.publish([name], f"of {name}", exchange="")
    with User(here) as user:
        assert sorted(user.wait(2)) == ["site1", "site2"]
    assert user_program.depth(sites["site0"].uri, "of site0") == 1
    assert len(agent.links()) == 2


def statuses(agent: Agent) -> dict[Named, str]:
    return {name: str(entry["status"]) for name, entry in agent.links().items()}
