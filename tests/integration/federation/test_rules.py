"""Rules of exchange links: headers that are set and removed, and a limit that holds one link and no other."""

from __future__ import annotations

import signal
import time
from typing import Any, cast

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.status.asking import get, link_when, metric
from tests.lab.user_program import messages, numbered
from tests.lab.waiting import eventually

RATE = 100
SLOW, FAST = "fed.slow", "fed.fast"


def test_headers_are_set_and_removed(agent_of: AgentOf, here: Site, there: Site) -> None:
    """At whatever place the message has them, and also where the link has to rewrite its own."""
    here.exchange().queue("k")
    there.exchange()
    rules: dict[str, Any] = {
        "set-headers": {"site": "eu", "n": 3, "l": ["a", None]},
        "remove-headers": ["secret", "debug-*"],
    }
    agent = agent_of(here.node).write({here.vhost: federated(there, **rules, **{"max-hops": 3})}).start()
    link_when(agent, "that runs", lambda link: link["status"] == "running")
    there.wait_bound("k")
    hop = {"uri": "amqp://far", "exchange": "x", "redelivered": False, "cluster-name": "far", "vhost": "v"}
    given: list[dict[str, Any]] = [
        {},
        {"mine": 1},
        {"mine": 1, "secret": "s", "debug-a": 1, "debug": 2, "site": "us"},
        {"x-received-from": [hop], "secret": "s", "mine": 1},
    ]
    for headers in given:
        there.publish(["m"], headers=headers)
    found = [dict(each.headers) for each in messages(here.uri, "q", len(given))]
    hops = [len(cast("list[Any]", each.pop("x-received-from"))) for each in found]
    is_set = {"site": "eu", "n": 3, "l": ["a", None]}
    assert found == [is_set, is_set | {"mine": 1}, is_set | {"mine": 1, "debug": 2}, is_set | {"mine": 1}]
    assert hops == [1, 1, 1, 2]


def shown(agent: Agent, name: str = X) -> dict[str, Any]:
    [found] = [each for each in get(agent, "/api/links") if each["exchange"] == name]
    return dict(found)


def test_a_limit_is_shown_and_a_change_restarts_nothing(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    there.exchange()

    def section(limit: Any) -> dict[str, Any]:
        more: dict[str, Any] = {"lag-critical": 1, "rate-limit": limit}
        return {here.vhost: federated(there, **more)}

    agent = agent_of(here.node).write(section({"messages": RATE})).start()
    there.wait_bound("k")
    eventually(lambda: shown(agent)["backlog"] == 0, what="it runs")
    begun = time.monotonic()
    there.publish(numbered(20 * RATE))
    eventually(lambda: shown(agent)["critical_since"], what="it is behind")
    link = shown(agent)
    assert (link["status"], link["limited"], link["rate_limit"]) == ("running", True, {"messages": RATE, "bytes": None})
    assert f"held to its rate-limit of {RATE} messages/s" in link["error"]
    [cause] = get(agent, "/api/causes")["causes"]
    assert (cause["trouble"], cause["advice"][:18]) == ("further behind than lag-critical", "Raise `rate-limit`")
    first = here.take(4 * RATE)
    assert time.monotonic() - begun > 2
    assert (metric(agent, "federation_agent_link_limited_seconds_total") or 0) > 1
    agent.write(section({"messages": 50 * RATE})).signal(signal.SIGHUP)
    eventually(lambda: shown(agent)["rate_limit"] == {"messages": 50 * RATE, "bytes": None}, what="another limit")
    rest = here.take(20 * RATE - len(first))
    agent.write(section("off")).signal(signal.SIGHUP)
    eventually(lambda: shown(agent)["rate_limit"] is None, what="the limit is gone")
    there.publish(later := numbered(RATE, start=20 * RATE))
    assert first + rest + here.take(RATE) == numbered(20 * RATE) + later
    eventually(lambda: not shown(agent)["limited"], what="it isn't shown as limited any more")
    assert agent.history(here.vhost, X).count("running") == 1
    assert shown(agent)["reconnects"] == 0
    assert agent.terminate() == 0


def test_a_link_that_pays_for_a_large_message_holds_up_no_other_and_is_not_stalled(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """For two minutes nothing is read for it. A link that ends is not kept by that."""
    for name in (SLOW, FAST):
        here.exchange(name).queue("k", name=f"q {name}", exchange=name)
        there.exchange(name)
    sets = {SLOW: [{"upstream": "origin", "rate-limit": {"bytes": 1_000}}], FAST: [{"upstream": "origin"}]}
    policies = {
        name: {"pattern": f"^{name}$", "apply-to": "exchanges", "definition": {"federation-upstream-set": name}}
        for name in sets
    }
    agent = agent_of(here.node)
    section = federated(there) | {"upstream-sets": sets, "policies": policies}
    agent.write({here.vhost: section}, agent=agent.settings(**{"stall-after": 2})).start()
    for name in (SLOW, FAST):
        there.wait_bound("k", exchange=name)
    there.publish(["x" * 120_000, "waits"], exchange=SLOW)
    assert here.take(1, queue=f"q {SLOW}") == ["x" * 120_000]
    began = time.monotonic()
    there.publish(numbered(200), exchange=FAST)
    assert here.take(200, queue=f"q {FAST}") == numbered(200)
    assert time.monotonic() - began < 90
    eventually(lambda: shown(agent, SLOW)["backlog"] == 1, what="what waits is counted")
    time.sleep(3)
    link = shown(agent, SLOW)
    assert (link["status"], link["limited"], link["forwarded"]) == ("running", True, 1)
    assert get(agent, "/api/causes")["level"] == "fine"
    assert "stalled" not in agent.history(here.vhost, SLOW)
    assert agent.terminate() == 0
    there.wait_depth(1, f"federation: {SLOW} -> {here.node.admin.get('cluster-name')['name']}:{here.vhost}:{SLOW}")
