"""How many messages an upstream may send ahead, where the agent is to find that out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.core.links import read_limits
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import link
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

MANY = 8_000
SLOW = 500_000  # bytes per second: the downstream needs some seconds, on any machine
BrokerOn = Callable[..., Node]


def size(agent: Agent, upstream: str = "origin") -> int:
    [found] = [each for each in ask(agent, "/api/links") if each["upstream"] == upstream]
    return int(found["prefetch"])


def tell(agent: Agent, action: str) -> None:
    [found] = ask(agent, "/api/links")
    ask(agent, f"/api/links/{found['id']}/{action}", "POST")


@pytest.mark.parametrize(
    ("release", "kind"), [(None, "classic"), pytest.param("sid", "quorum", marks=pytest.mark.versions)]
)
def test_a_backlog_makes_it_grow_and_nothing_comes_twice_or_in_another_order(
    agent_of: AgentOf,
    here: Site,
    site_on: SiteOn,
    broker_on: BrokerOn,
    proxy_to: Callable[[Node], Proxy],
    *,
    release: str | None,
    kind: str,
) -> None:
    there = site_on(broker_on(release, name="broker" if release else "second"))
    here.exchange().queue("k")
    way = proxy_to(here.node)
    agent = (
        agent_of(here.node, uri=here.node.uri(port=way.port))
        .write({here.vhost: federated(there, **{"queue-type": kind})})
        .start()
    )
    agent.wait_for("running", link(here))
    assert size(agent) == read_limits.START_PREFETCH
    tell(agent, "pause")
    agent.wait_for("paused", link(here))
    there.wait_unconsumed()
    assert there.publish(numbered(MANY)) == MANY
    way.throttle(SLOW)
    tell(agent, "resume")
    eventually(lambda: size(agent) == read_limits.NEAR_PREFETCH, what="more may be on the way")
    way.throttle(None)
    came = here.take(MANY, deadline=180)
    assert (set(numbered(MANY)) - set(came), len(came)) == (set(), MANY)
    assert came == numbered(MANY)
    # It was opened twice and never broke; a busy broker may block publishers for a moment.
    assert agent.history(*link(here)).count("starting") == 1
    assert agent.terminate() == 0


def test_large_messages_make_it_shrink_and_a_size_that_is_given_stays(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    here.exchange().queue("k")
    definition = federated(there)
    definition["upstreams"]["given"] = {"uri": there.uri, "exchange": "given", "prefetch-count": 7}
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_running(2)
    bodies = [number * 174_763 for number in numbered(12)]  # a little over 1 MiB each
    there.publish(bodies)
    assert here.take(12) == bodies
    eventually(lambda: size(agent) < 40, what="fewer may be on the way")
    there.publish(numbered(200))
    assert here.take(200) == numbered(200)
    there.publish(numbered(500), exchange="given")
    assert here.take(500) == numbered(500)
    assert size(agent, "given") == 7
