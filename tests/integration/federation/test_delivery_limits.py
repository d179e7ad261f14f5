"""Upstream queues of type quorum: fifty lost connections lose nothing, with the policy that operations.md advises."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, policies
from tests.integration.status.asking import get
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

RELEASES: Final = ("trixie", "sid")
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


@dataclass
class Failing:
    """The link of one release, which is cut over and over."""

    release: str
    site: Site
    way: Proxy
    agent: Agent
    reconnects: int = 0

    def shown(self) -> dict[str, Any]:
        return next(each for each in get(self.agent, "/api/links") if each["upstream"] == self.release)

    def in_flight(self) -> bool:
        """Some more are published where all were acknowledged before anybody looked."""
        found = self.shown()
        if found["status"] == "running" and not found["in_flight"]:
            self.site.publish(["more"])
        return bool(found["status"] == "running" and found["in_flight"])

    def cut(self, bodies: list[str]) -> None:
        """While some of these are on their way."""
        self.site.publish(f"{self.release} {body}" for body in bodies)
        eventually(self.in_flight, what=f"messages of {self.release} are in flight")
        self.reconnects = self.shown()["reconnects"]
        self.way.cut()

    def was_cut(self) -> bool:
        """It may run again already."""
        found = self.shown()
        return bool(found["status"] != "running" or found["reconnects"] > self.reconnects)


@pytest.mark.versions
def test_fifty_failures_of_a_link_lose_nothing(  # noqa: PLR0917
    agent_of: AgentOf,
    here: Site,
    there: Site,
    site_on: SiteOn,
    broker_on: Callable[..., Node],
    proxy_to: Callable[[Node], Proxy],
) -> None:
    """Of a link from each release, side by side."""
    down = proxy_to(here.node)
    agent = agent_of(here.node, uri=here.node.uri("/", port=down.port))
    sites = {release: site_on(broker_on(release)) for release in RELEASES}
    links = [Failing(release, site, proxy_to(site.node), agent) for release, site in sites.items()]
    here.exchange().queue("k")
    # A link that goes on holds the connection to the downstream open, so that only sessions of the others begin again.
    upstreams: dict[str, Any] = {"keeper": {"uri": there.uri, "exchange": "keeper"}}
    for each in links:
        admin, vhost = each.site.node.admin, each.site.vhost
        admin.policy(vhost, "returns", "^federation: ", definition=advised(), apply_to="queues")
        uri = each.site.node.uri(vhost, port=each.way.port)
        upstreams[each.release] = {"uri": uri, "queue-type": "quorum", "reconnect-delay": 0.5}
    agent.write({here.vhost: {"upstreams": upstreams, "policies": policies()}}).start()
    agent.wait_running(3)
    for each in links:
        each.site.wait_bound("k")
    down.delay(DELAY)
    for failure in range(FAILURES):
        for each in links:
            each.cut(numbered(MESSAGES)[failure * EACH : (failure + 1) * EACH])
        for each in links:
            eventually(each.was_cut, what="the link has lost its connection")
    down.delay(0)
    missing = {f"{release} {body}" for release in RELEASES for body in numbered(MESSAGES)}
    while missing and (more := here.take(1)):
        missing -= set(more)
    assert not missing
    assert all(each.shown()["redelivered"] for each in links)
