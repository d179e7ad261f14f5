"""Connections that are reset twenty times while messages pass: nothing is lost, and nothing gets stuck.

FEDERATION_AGENT_RESET_MESSAGES sets how many messages there are.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import Q, User, declare, federated, queue
from tests.lab import user_program
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import DEADLINE, eventually
from tests.tiers import thorough

BrokerOn = Callable[..., Node]
ProxyTo = Callable[[Node | int], Proxy]
MESSAGES: Final = int(os.environ.get("FEDERATION_AGENT_RESET_MESSAGES", "2000"))
RESETS: Final = 20
PART: Final = MESSAGES // (RESETS + 5)
PATIENCE: Final = DEADLINE + MESSAGES / 200

pytestmark = pytest.mark.timeout(400 + 2 * PATIENCE)

log = logging.getLogger(__name__)


Between = Callable[..., tuple[Agent, list[Proxy]]]


@pytest.fixture
def between(agent_of: AgentOf, proxy_to: ProxyTo) -> Between:
    """`between(here, there)`: an agent that reaches both brokers through proxies; settings are the upstream's."""

    def start(here: Site, there: Site, **settings: object) -> tuple[Agent, list[Proxy]]:
        up, down = proxies = [proxy_to(there.node), proxy_to(here.node)]
        agent = agent_of(here.node, uri=here.node.uri(port=down.port))
        upstream = {"uri": there.node.uri(there.vhost, port=up.port), "reconnect-delay": 1} | settings
        agent.write({here.vhost: federated(there) | {"upstreams": {"origin": upstream}}}).start()
        agent.wait_for("running", queue(here))
        return agent, proxies

    return start


@pytest.fixture(params=[None, pytest.param("sid", marks=pytest.mark.versions)])
def downstream(request: pytest.FixtureRequest, site_on: SiteOn, broker_on: BrokerOn) -> Site:
    """On brokers of two releases."""
    return site_on(broker_on(request.param))


@pytest.mark.parametrize("kind", [thorough("classic"), "quorum"])
def test_nothing_is_lost(between: Between, downstream: Site, there: Site, kind: str) -> None:
    declare(downstream, there, arguments={"x-queue-type": kind})
    agent, proxies = between(downstream, there)
    bodies = numbered(MESSAGES)
    there.publish(bodies[: 5 * PART], Q, exchange="")
    with User(downstream, prefetch=100) as user:
        for number in range(RESETS):
            there.publish(bodies[(5 + number) * PART : (6 + number) * PART], Q, exchange="")
            user.wait((number + 1) * PART, PATIENCE)
            proxies[number % 2].cut()
        there.publish(bodies[(RESETS + 5) * PART :], Q, exchange="")
        eventually(lambda: set(user.taken) == set(bodies), PATIENCE, what="all have come")
        # What was not acknowledged when the last connection was cut comes once more.
        eventually(lambda: user_program.depth(there.uri, Q) == 0, PATIENCE, what="nothing is left")
    log.info("%d of %d came twice", len(user.taken) - len(bodies), len(bodies))
    assert agent.logged("unexpected error") == []


@pytest.mark.parametrize("mode", ["on-publish", "no-ack"])
@pytest.mark.thorough
def test_modes_that_may_lose_messages_go_on(between: Between, here: Site, there: Site, mode: str) -> None:
    declare(here, there)
    agent, proxies = between(here, there, **{"ack-mode": mode})
    bodies = numbered(MESSAGES)
    with User(here, prefetch=100) as user:
        for number in range(RESETS):
            there.publish(bodies[number * PART : (number + 1) * PART], Q, exchange="")
            proxies[number % 2].cut()
        there.publish(bodies[RESETS * PART :], Q, exchange="")
        eventually(lambda: user_program.depth(there.uri, Q) == 0, PATIENCE, what="nothing is stuck upstream")

        def passes() -> bool:
            there.publish(["last"], Q, exchange="")  # one may go with a session that hasn't noticed its end
            return "last" in user.taken

        eventually(passes, PATIENCE, what="messages pass")
    log.info("%d of %d were lost", len(set(bodies) - set(user.taken)), len(bodies))
    assert agent.logged("unexpected error") == []
