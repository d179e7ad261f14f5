"""Rules of exchange links: headers that are set and removed, and a limit that holds one link and no other."""

from __future__ import annotations

import signal
import time
from typing import Any, cast

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site, federated
from tests.integration.status.asking import get, link_when, metric
from tests.lab.user_program import messages, numbered
from tests.lab.waiting import eventually

RATE = 200


def test_headers_are_set_and_removed(agent_of: AgentOf, here: Site, there: Site) -> None:
    """At whatever place the message has them, and also where the link has to rewrite its own."""
    here.exchange().queue("k")
    there.exchange()
    rules = {"set-headers": {"site": "eu", "n": 3, "l": ["a", None]}, "remove-headers": ["secret", "debug-*"]}
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


def test_a_limit_holds_its_link_and_no_other_and_a_change_restarts_nothing(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    for name in ("fed.slow", "fed.fast"):
        here.exchange(name).queue("k", name=f"q {name}", exchange=name)
        there.exchange(name)

    def section(limit: Any) -> dict[str, Any]:
        members = {"slow": [{"upstream": "origin", "rate-limit": limit}], "fast": [{"upstream": "origin"}]}
        return {
            **federated(there, **{"lag-critical": 1}),
            "upstream-sets": members,
            "policies": {
                name: {
                    "pattern": rf"^fed\.{name}$",
                    "apply-to": "exchanges",
                    "definition": {"federation-upstream-set": name},
                }
                for name in members
            },
        }

    agent = agent_of(here.node).write({here.vhost: section({"messages": RATE})}).start()
    for name in ("fed.slow", "fed.fast"):
        there.wait_bound("k", exchange=name)

    def shown(name: str) -> dict[str, Any]:
        [found] = [each for each in get(agent, "/api/links") if each["exchange"] == name]
        return dict(found)

    eventually(lambda: shown("fed.slow")["backlog"] == 0 == shown("fed.fast")["backlog"], what="both run")
    there.publish(numbered(15 * RATE), exchange="fed.slow")
    begun = time.monotonic()
    there.publish(numbered(20 * RATE), exchange="fed.fast")
    assert here.take(20 * RATE, queue="q fed.fast") == numbered(20 * RATE)
    assert time.monotonic() - begun < 9, "it waits for no other"
    slow = shown("fed.slow")
    assert (slow["status"], slow["limited"], slow["rate_limit"]) == ("running", True, {"messages": RATE, "bytes": None})
    assert shown("fed.fast")["limited"] is False
    assert f"held to its rate-limit of {RATE} messages/s" in slow["error"]
    [cause] = get(agent, "/api/causes")["causes"]
    assert (cause["trouble"], cause["advice"][:18]) == ("further behind than lag-critical", "Raise `rate-limit`")
    first = here.take(4 * RATE, queue="q fed.slow")
    assert time.monotonic() - begun > 2.5
    assert (metric(agent, "federation_agent_link_limited_seconds_total") or 0) > 1, "of the only link with a limit"
    agent.write({here.vhost: section("off")}).signal(signal.SIGHUP)
    eventually(lambda: shown("fed.slow")["rate_limit"] is None, what="the limit is gone")
    there.publish(later := numbered(20 * RATE, start=15 * RATE), exchange="fed.slow")
    rest = here.take(35 * RATE - len(first), queue="q fed.slow")
    assert first + rest == numbered(15 * RATE) + later
    eventually(lambda: not shown("fed.slow")["limited"], what="it isn't shown as limited any more")
    assert agent.history(here.vhost, "fed.slow").count("running") == 1
    assert shown("fed.slow")["reconnects"] == 0
    assert agent.terminate() == 0
