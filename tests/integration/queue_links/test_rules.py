"""Rules of queue links: headers beside the link's own, and a limit while consumers come and go."""

from __future__ import annotations

import time
from typing import Any, cast

from aio_pika.abc import AbstractIncomingMessage

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import Q, User, declare, federated, link_of, queue
from tests.integration.status.asking import metric
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import DEADLINE, eventually

RATE = 100
RULES: dict[str, Any] = {
    "set-headers": {"site": "eu"},
    "remove-headers": ["secret", "debug-*"],
    "rate-limit": {"messages": RATE},
}


def test_headers_are_set_and_removed_at_the_limit(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there, **RULES)}).start()
    agent.wait_for("running", queue(here))
    there.publish(["a"], Q, exchange="", headers={"secret": "s", "mine": 1, "site": "us"})
    there.publish(["b"], Q, exchange="", headers={"debug-x": 1, "x-received-from": [{"uri": "u", "queue": "far"}]})
    there.publish(numbered(3 * RATE), Q, exchange="")
    found: list[AbstractIncomingMessage] = []
    begun = time.monotonic()
    with User(here, on_message=found.append) as user:
        user.wait(RATE)
        assert link_of(agent)["limited"] or metric(agent, "federation_agent_link_limited_seconds_total")
        user.wait(3 * RATE + 2)
    assert 1 < time.monotonic() - begun < DEADLINE / 2
    assert user.taken == ["a", "b", *numbered(3 * RATE)]
    first, second = (dict(each.headers) for each in found[:2])
    assert [len(cast("list[Any]", each.pop("x-received-from"))) for each in (first, second)] == [1, 2]
    own = {"x-original-exchange": "", "x-original-routing-key": Q}
    assert first == {"site": "eu", "mine": 1} | own
    assert second["site"] == "eu" and "debug-x" not in second
    link = link_of(agent)
    assert (link["status"], link["reconnects"], depth(there.uri, Q)) == ("running", 0, 0)


def test_a_limited_link_stops_and_goes_on_with_consumers(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare(here, there)
    limited: dict[str, Any] = {"rate-limit": {"messages": RATE}}
    agent = agent_of(here.node).write({here.vhost: federated(there, **limited)}).start()
    agent.wait_for("running", queue(here))
    there.publish(numbered(30 * RATE), Q, exchange="")
    with User(here) as user:
        user.wait(RATE)
    eventually(lambda: (link_of(agent)["error"] or "").startswith("idle"), what="it has stopped")
    waiting = depth(there.uri, Q)
    assert waiting > 10 * RATE
    with User(here) as other:
        other.wait(2 * RATE)
    assert depth(there.uri, Q) < waiting
    assert agent.terminate() == 0
