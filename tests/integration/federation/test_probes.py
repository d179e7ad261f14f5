"""Probes prove that a link delivers where nothing else moves, and show its lag in time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agent.core.rules import headers
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Q, Site, federated
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import ProxyTo, link
from tests.lab.admin import AdminError
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually, holds_within

PROBE = "1s"
NOTICED = 9.0  # three intervals, and room


def only(agent: Agent) -> dict[str, Any]:
    [found] = ask(agent, "/api/links")
    return dict(found)


def wait_probes(agent: Agent, count: int = 3) -> list[float]:
    """The lags of some probes."""
    seen: dict[str, float] = {}

    def enough() -> bool:
        shown = only(agent)
        if shown["last_probe"]:
            seen.setdefault(shown["last_probe"], shown["lag_seconds"])
        return len(seen) >= count

    eventually(enough, what=f"{count} probes came through")
    return list(seen.values())


def test_they_reach_nobody_and_show_the_lag_of_the_path_and_a_link_that_delivers_nothing(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    """What goes up and comes down is late by the round trip's delays. That the queue upstream takes nothing more, while
    nobody publishes, is shown by probes alone, after three intervals."""
    here.exchange().queue("#")
    there.exchange().queue("#")
    proxy = proxy_to(there.node)
    definition = federated(there, probe=PROBE, uri=there.node.uri(there.vhost, port=proxy.port))
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    near = min(wait_probes(agent))
    there.publish(numbered(10))
    assert here.take(10) == numbered(10)
    wait_probes(agent, 2)
    shown = only(agent)
    assert (shown["forwarded"], shown["dropped"], shown["returned"], shown["status"]) == (10, 0, 0, "running")
    assert (depth(here.uri, Q), depth(there.uri, Q)) == (0, 10)
    assert "federation_agent_lag_seconds{" in ask(agent, "/metrics")

    proxy.delay(0.2)
    wait_probes(agent)  # those that were on their way
    far = min(wait_probes(agent))
    assert 0 <= near < 0.4 <= far < near + 0.75
    proxy.delay(0)
    wait_probes(agent, 2)
    limit = {"max-length": 0, "overflow": "reject-publish"}

    def attempt() -> float:
        there.node.admin.policy(there.vhost, "closed", "^federation: ", definition=limit, apply_to="queues")
        begun = time.monotonic()
        agent.wait_for("stalled", link(here))
        took = time.monotonic() - begun
        assert "no probe has come through for 2.8 s" in only(agent)["error"]
        there.node.admin.delete("policies", there.vhost, "closed")
        agent.wait_for("running", link(here))
        return took

    holds_within(NOTICED, attempt)
    assert agent.terminate() == 0
    private = [each["name"] for each in here.node.admin.get("queues", here.vhost)]
    assert not any("probes" in name for name in private)


def test_one_that_waits_shows_how_far_behind_the_link_is_and_others_follow_whatever_becomes_of_it(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    """It is purged, or its agent is killed."""
    here.exchange().queue("#")
    there.exchange()
    proxy = proxy_to(here.node)
    definition = federated(there, **{"probe": PROBE, "lag-critical": "20s", "prefetch-count": 10})
    agent = agent_of(here.node, uri=here.node.uri("/", port=proxy.port)).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("#")
    wait_probes(agent, 1)
    proxy.throttle(150 * 1024)
    there.publish("x" * 20_480 for _ in range(450))  # 60 s
    eventually(lambda: only(agent)["critical_since"], what="the backlog counts")
    assert only(agent)["behind_seconds"] >= 20
    eventually(lambda: only(agent)["lag_seconds"] > 2, what="a probe waits")
    there.node.admin.delete("queues", there.vhost, link_queue(there), "contents")
    proxy.throttle(None)
    wait_probes(agent)

    agent.kill()
    there.publish(numbered(5))
    here.node.admin.delete("queues", here.vhost, Q, "contents")
    agent.start()
    assert here.take(5) == numbered(5)
    wait_probes(agent, 2)
    assert depth(here.uri, Q) == 0
    assert agent.terminate() == 0


@pytest.mark.thorough
def test_none_is_dead_lettered_however_far_behind_the_link_is(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    """By a policy as many sites have it. And of one that was on its way, no others follow."""
    here.exchange().queue("#")
    there.exchange()
    there.node.admin.exchange(there.vhost, "dlx", "fanout")
    there.queue("#", name="dead", exchange="dlx")
    definition = {"dead-letter-exchange": "dlx"}
    there.node.admin.policy(there.vhost, "all", ".*", definition=definition, apply_to="queues")
    proxy = proxy_to(here.node)
    agent = agent_of(here.node, uri=here.node.uri("/", port=proxy.port))
    agent.write({here.vhost: federated(there, **{"probe": PROBE, "prefetch-count": 10})}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("#")
    wait_probes(agent, 2)
    proxy.throttle(150 * 1024)
    there.publish(f"{body:<20480}" for body in numbered(240))  # 32 s
    lived = 3 * 4  # seconds; a TTL of three intervals would have been over after three
    eventually(
        lambda: depth(there.uri, "dead") or only(agent)["lag_seconds"] > lived, what="a probe has waited for long"
    )
    assert depth(there.uri, "dead") == 0
    agent.kill()
    waiting = eventually(
        lambda: look_into(there, link_queue(there)), ignoring=AdminError, what="what was on its way is back"
    )
    assert len(waiting) > 10
    assert sum(headers.PROBE in each["properties"].get("headers", {}) for each in waiting) == 1
    assert depth(there.uri, "dead") == 0


def link_queue(site: Site) -> str:
    [queue] = [name for name in site.links_objects() if not name.endswith((" A", " B"))]
    return queue


def look_into(site: Site, queue: str) -> list[dict[str, Any]]:
    wanted = {"count": 200, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 1}
    return list(site.node.admin.post("queues", site.vhost, queue, "get", body=wanted))
