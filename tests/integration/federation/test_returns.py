"""Quorum queues count what comes back to them, and brokers from 4.0 on drop a message that came back 20 times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.core.links import prefetch
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Q, Site, federated
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import ProxyTo, link
from tests.integration.federation.test_prefetch import size, tell
from tests.lab.node import Node
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

pytestmark = pytest.mark.versions

OFTEN = 22  # the 21st return is the end of a message
WAITING = numbered(300)


def test_the_head_of_a_backlog_outlives_a_link_that_breaks_over_and_over(
    agent_of: AgentOf, here: Site, site_on: SiteOn, broker_on: Callable[..., Node], proxy_to: ProxyTo
) -> None:
    there = site_on(broker_on("sid", name="second"))
    here.exchange().queue("k")
    here.publish(["full"])
    refuse = {"max-length": 1, "overflow": "reject-publish"}
    here.node.admin.policy(here.vhost, "full", f"^{Q}$", definition=refuse, apply_to="queues")
    proxy = proxy_to(there.node)
    definition = federated(there, **{"queue-type": "quorum", "reconnect-delay": 0.1})
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, port=proxy.port)
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    there.publish(WAITING)

    def again(breaks: Callable[[], None]) -> None:
        [before] = ask(agent, "/api/links")

        def runs() -> bool:
            [found] = ask(agent, "/api/links")
            return bool(found["status"] == "running" and found["since"] != before["since"])

        breaks()
        eventually(runs, what="it runs again")

    for _ in range(OFTEN):  # what a stop gives back isn't counted, where the broker allows it
        again(lambda: tell(agent, "restart"))
    assert size(agent) == prefetch.CAREFUL
    for _ in range(OFTEN):  # what a lost connection gives back is; so next to nothing is at stake
        again(proxy.cut)
    here.node.admin.delete("policies", here.vhost, "full")
    came = here.take(len(WAITING), deadline=15)
    assert set(WAITING) - set(came) <= set(WAITING[: prefetch.CAREFUL])
    eventually(lambda: size(agent) == prefetch.START, what="what comes through makes it trust")
    assert agent.terminate() == 0
