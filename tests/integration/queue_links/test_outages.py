"""Brokers that restart, brokers of other releases, and brokers without events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.federation.test_api import ask
from tests.integration.queue_links.scene import (
    Q,
    User,
    connections_of_links,
    declare,
    federated,
    link_of,
    queue,
    taken_from,
    upstream_consumers,
    wait_error,
)  # fmt: skip
from tests.lab.cluster import Cluster
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered, times
from tests.lab.waiting import eventually

BrokerOn = Callable[..., Node]
ProxyTo = Callable[[Node], Proxy]
Scene = tuple[str | None, str]
SID = "sid"


def test_a_downstream_without_events_is_polled(agent_of: AgentOf, there: Site, lab: Lab, site_on: SiteOn) -> None:
    node = lab.shared("quiet", plugins=("rabbitmq_management",))
    here = site_on(node)
    declare(here, there)
    agent = agent_of(node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here))
    there.publish(numbered(100), Q, exchange="")
    for _ in range(2):
        with User(here) as user:
            assert times(user.wait(100)) == dict.fromkeys(numbered(100), 1)
        there.publish(numbered(100), Q, exchange="")


def start_below(agent: Agent, below: Site, here: Site, network: Proxy) -> None:
    """A link that consumes from `here` through this network."""
    definition = federated(here)
    definition["upstreams"]["origin"]["uri"] = here.node.uri(here.vhost, port=network.port)
    agent.write({below.vhost: definition}).start()


def cut_off(network: Proxy) -> None:
    network.refuse()
    network.cut()


@pytest.mark.parametrize("scene", [(None, "classic"), pytest.param((SID, "quorum"), marks=pytest.mark.versions)])
def test_a_link_below_that_is_cut_off_and_comes_back_is_no_user_and_counts_once(
    agent_of: AgentOf, site_on: SiteOn, there: Site, broker_on: BrokerOn, *, proxy_to: ProxyTo, scene: Scene
) -> None:
    """Since 3.13 brokers report of what consumed on a channel only that the channel is closed. It may consume since
    before the link began anew, when nobody else watched the vhost."""
    release, kind = scene
    here, below = site_on(broker_on(release)), site_on(broker_on(release))
    declare(here, below, arguments={"x-queue-type": kind})
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here))
    start_below(agent_of(below.node), below, here, network := proxy_to(here.node))
    with User(below), User(here) as user:
        eventually(lambda: upstream_consumers(here) == 2, what="both consume")
        wait_error(agent, None)
        taken = 0
        for number in range(2):
            cut_off(network)
            eventually(lambda: upstream_consumers(here) == 1, what="the link below is cut off")
            there.publish(numbered(3, start=taken), Q, exchange="")
            user.wait(taken := taken + 3)
            network.accept()
            eventually(lambda: upstream_consumers(here) == 2, what=f"it is back, time {number}")
            there.publish(numbered(3, start=taken), Q, exchange="")
            user.wait(taken := taken + 3)

        ask(agent, f"/api/links/{link_of(agent)['id']}/restart", "POST")

        def has_begun_anew() -> bool:
            return agent.history(*queue(here))[-2:] == ["starting", "running"]

        eventually(has_begun_anew, what="it has begun anew")
        wait_error(agent, None)
        cut_off(network)
        eventually(lambda: upstream_consumers(here) == 1, what="the link below is cut off")
        network.accept()
        eventually(lambda: upstream_consumers(here) == 2, what="it is back")
        for number in range(3):
            there.publish([str(number)], Q, exchange="")
            user.wait(taken := taken + 1)
            time.sleep(0.5)  # what comes within a moment is taken before the queue is looked at


@pytest.mark.versions
def test_a_link_below_that_was_connected_to_a_node_that_is_killed(agent_of: AgentOf, there: Site, lab: Lab) -> None:
    """No event reports its end, and the list of another node has it for minutes."""
    lost, node, _ = Cluster.of(lab, release=SID).start().nodes
    here = Site(node, "/")
    declare(here)
    agent = agent_of(node).write({"/": federated(there)}).start()
    agent.wait_for("running", queue(here))
    link = partial(User, tag="federation-link-below", priority=-1, prefetch=1)
    with User(here) as user:
        link(Site(lost, "/")).start()
        wait_error(agent, None)
        eventually(lambda: connections_of_links(here), what="the link below is listed")
        lost.kill()
        eventually(lambda: upstream_consumers(here) == 1, what="the link below is lost")
        with link(here):
            assert upstream_consumers(here) == 2
            for number in range(3):
                there.publish([str(number)], Q, exchange="")
                user.wait(number + 1)
                time.sleep(1)  # what comes within a moment is taken before the queue is looked at


@pytest.mark.versions
def test_another_release(agent_of: AgentOf, site_on: SiteOn, here: Site, broker_on: BrokerOn) -> None:
    """Both ways between 3.10 and 4.3, by policies for types of queues that 3.10 itself doesn't know."""
    there = site_on(broker_on(SID))
    names = {kind: f"work.{kind}" for kind in ("classic", "quorum")}
    agents = [agent_of(here.node), agent_of(there.node)]
    for agent, below, above in zip(agents, (here, there), (there, here), strict=True):
        definition = federated(above)
        policy = definition["policies"].pop("federate")
        definition["policies"] |= {kind: policy | {"apply-to": f"{kind}_queues"} for kind in names}
        for kind, name in names.items():
            declare(below, name=name, arguments={"x-queue-type": kind})
        agent.write({below.vhost: definition}).start()
    for agent, below in zip(agents, (here, there), strict=True):
        agent.wait_for("running", *(queue(below, name) for name in names.values()))
    for name in names.values():
        here.publish(numbered(200), name, exchange="")
        there.publish(numbered(200, start=200), name, exchange="")
        with User(there, name, prefetch=10) as user:
            first = user.wait(400)
        assert times(first) == dict.fromkeys(numbered(400), 1)
        there.publish(late := numbered(100, start=400), name, exchange="")
        with User(here, name, prefetch=10) as user:
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
