"""Brokers that restart, brokers of other releases, and brokers without events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import NO_CONSUMERS, Q, User, declare, federated, queue, taken_from, wait_error
from tests.lab import user_program
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.user_program import numbered, times
from tests.lab.waiting import eventually

BrokerOn = Callable[..., Node]
SID = "sid"


@pytest.mark.parametrize("release", [None, pytest.param(SID, marks=pytest.mark.versions)])
def test_a_downstream_that_restarts(agent_of: AgentOf, there: Site, lab: Lab, release: str | None) -> None:
    """Consumers that came before the agent heard of any are found again; also without events."""
    node = lab.node("restarted", release=release).start()
    here = Site(node, "/")
    declare(here, there)
    agent = agent_of(node).write({"/": federated(there)}).start()
    agent.wait_for("running", queue(here))
    there.publish(numbered(100), Q, exchange="")
    with User(here) as user:
        user.wait(100)
    node.restart()  # the queue is durable, and the link comes back by itself
    there.publish(late := numbered(100, start=100), Q, exchange="")
    with User(here) as user:
        assert user.wait(100) == late
    wait_error(agent, NO_CONSUMERS)
    node.kill()


@pytest.mark.parametrize("release", [None, pytest.param(SID, marks=pytest.mark.versions)])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_upstream_that_restarts(agent_of: AgentOf, here: Site, lab: Lab, kind: str, release: str | None) -> None:
    """Under load: what was on its way comes again, and the rest follows."""
    node = lab.node("restarted", release=release).start()
    there = Site(node, "/")
    declare(here, there, arguments={"x-queue-type": kind})
    upstream = {"uri": there.uri, "reconnect-delay": 1}
    agent = agent_of(here.node).write({here.vhost: federated(there) | {"upstreams": {"origin": upstream}}}).start()
    agent.wait_for("running", queue(here))
    there.publish(bodies := numbered(1_000), Q, exchange="")
    with User(here, prefetch=20) as user:
        user.wait(300)
        node.restart()
        eventually(lambda: set(user.taken) == set(bodies), 60, what="all have come")
    assert user_program.depth(there.uri, Q) == 0
    node.kill()


def test_a_downstream_without_events_is_polled(agent_of: AgentOf, there: Site, lab: Lab) -> None:
    node = lab.node("quiet", plugins=("rabbitmq_management",)).start()
    here = Site(node, "/")
    declare(here, there)
    agent = agent_of(node).write({"/": federated(there)}).start()
    agent.wait_for("running", queue(here))
    there.publish(numbered(100), Q, exchange="")
    for _ in range(2):
        with User(here) as user:
            assert times(user.wait(100)) == dict.fromkeys(numbered(100), 1)
        there.publish(numbered(100), Q, exchange="")
    node.kill()


@pytest.mark.versions
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_another_release(agent_of: AgentOf, site_on: SiteOn, here: Site, broker_on: BrokerOn, kind: str) -> None:
    """Both ways between 3.10 and 4.3, by policies that 3.10 itself doesn't know."""
    there = site_on(broker_on(SID))
    declare(here, there, arguments={"x-queue-type": kind})
    apply_to = f"{kind}_queues"
    agents = [
        agent_of(here.node).write({here.vhost: federated(there, apply_to=apply_to)}).start(),
        agent_of(there.node).write({there.vhost: federated(here, apply_to=apply_to)}).start(),
    ]
    agents[0].wait_for("running", queue(here), deadline=30)
    agents[1].wait_for("running", queue(there), deadline=30)
    here.publish(numbered(200), Q, exchange="")
    there.publish(numbered(200, start=200), Q, exchange="")
    with User(there, prefetch=10) as user:
        first = user.wait(400)
    assert times(first) == dict.fromkeys(numbered(400), 1)
    there.publish(late := numbered(100, start=400), Q, exchange="")
    with User(here, prefetch=10) as user:
        assert sorted(user.wait(100)) == late


@pytest.mark.parametrize("release", [None, pytest.param(SID, marks=pytest.mark.versions)])
def test_a_long_name_that_a_broker_can_send_no_error_about(
    agent_of: AgentOf, site_on: SiteOn, here: Site, broker_on: BrokerOn, release: str | None
) -> None:
    """Brokers from 4.0 on close the connection instead of answering that the queue is missing."""
    there, name = site_on(broker_on(release)), "work" + "ž" * 120
    declare(here, name=name)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here, name))
    assert agent.history(*queue(here, name))[-1] == "running"
    there.exchange("x", "fanout").bind(name=name, exchange="x")
    there.publish(numbered(5), exchange="x")
    assert asyncio.run(taken_from(here, name, 5)) == numbered(5)
