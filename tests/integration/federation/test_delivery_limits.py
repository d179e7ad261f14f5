"""Upstream queues of type quorum: fifty lost connections lose nothing, with the policy that operations.md advises."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, federated
from tests.integration.status.asking import get
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

FAILURES: Final = 50
EACH: Final = 10
MESSAGES: Final = EACH * FAILURES
DELAY: Final = 0.1  # seconds to and from the downstream, so that sessions end while messages are in flight
DOCUMENT: Final = (Path(__file__).parents[3] / "docs/operations.md").read_text(encoding="utf-8")


def advised() -> dict[str, Any]:
    """The definition of the policy in docs/operations.md."""
    found = re.search(r"set_policy .* '(\{[^']*\})'", DOCUMENT)
    assert found
    return dict(json.loads(found[1]))


@pytest.mark.versions
@pytest.mark.parametrize("release", ["trixie", "sid"])
def test_fifty_failures_of_a_link_lose_nothing(  # noqa: PLR0917
    agent_of: AgentOf,
    here: Site,
    site_on: SiteOn,
    broker_on: Callable[..., Node],
    proxy_to: Callable[[Node], Proxy],
    release: str,
) -> None:
    there = site_on(broker_on(release))
    there.node.admin.policy(there.vhost, "returns", "^federation: ", definition=advised(), apply_to="queues")
    up, down = proxy_to(there.node), proxy_to(here.node)
    here.exchange().queue("k")
    definition = federated(there, **{"queue-type": "quorum", "reconnect-delay": 0.5})
    upstreams = definition["upstreams"]
    # A link that goes on holds the connection to the downstream open, so that only sessions of the other begin again.
    upstreams["keeper"] = {"uri": there.uri, "exchange": "keeper"}
    upstreams["origin"]["uri"] = there.node.uri(there.vhost, port=up.port)
    agent = agent_of(here.node, uri=here.node.uri("/", port=down.port)).write({here.vhost: definition}).start()
    agent.wait_running(2)
    there.wait_bound("k")
    down.delay(DELAY)

    def origin() -> dict[str, Any]:
        return next(each for each in get(agent, "/api/links") if each["upstream"] == "origin")

    def in_flight() -> bool:
        """Some more are published where all were acknowledged before anybody looked."""
        found = origin()
        if found["status"] == "running" and not found["in_flight"]:
            there.publish(["more"])
        return bool(found["status"] == "running" and found["in_flight"])

    for failure in range(FAILURES):
        there.publish(numbered(MESSAGES)[failure * EACH : (failure + 1) * EACH])
        eventually(in_flight, what=f"messages are in flight after {failure} failures")
        up.cut()
        eventually(lambda: origin()["status"] != "running", what="the link has lost its connection")
    down.delay(0)
    missing = set(numbered(MESSAGES))
    while missing and (more := here.take(1)):
        missing -= set(more)
    assert not missing
    assert origin()["redelivered"]
