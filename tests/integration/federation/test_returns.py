"""Quorum queues count what comes back to them, and brokers from 4.0 on drop a message that came back 20 times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.core.links import read_limits
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Q, Site, federated
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import ProxyTo, link
from tests.integration.federation.test_prefetch import size, tell
from tests.integration.quarantine.scene import QUARANTINE, has_queue, only
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import eventually

pytestmark = pytest.mark.versions

OFTEN = 25  # the 21st return is the end of a message
WAITING = numbered(300)
FEW = numbered(8)  # what comes back goes behind other messages, so of few each comes back every time


def failing(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo, *, waiting: list[str]
) -> tuple[Agent, Callable[[Callable[[], object]], None], Proxy]:
    """A link that gets nothing through; how it fails and runs again; and what can cut it."""
    here.exchange().queue("k")
    here.publish(["full"])
    refuse = {"max-length": 1, "overflow": "reject-publish"}
    here.node.admin.policy(here.vhost, "full", f"^{Q}$", definition=refuse, apply_to="queues")
    proxy = proxy_to(there.node)
    definition = federated(there, **{"queue-type": "quorum", "reconnect-delay": 0.1})
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, port=proxy.port)
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    there.publish(waiting)

    def again(breaks: Callable[[], object]) -> None:
        """Once it is known again that messages are refused: what is returned more often before that is lost."""
        [before] = ask(agent, "/api/links")

        def is_refused() -> bool:
            [found] = ask(agent, "/api/links")
            runs = found["status"] == "running" and found["since"] != before["since"]
            return bool(runs and (found["error"] or found["quarantined"] >= len(waiting)))

        breaks()
        eventually(is_refused, what="it runs again")

    return agent, again, proxy


def check_all_there(agent: Agent, here: Site, there: Site, waiting: list[str]) -> None:
    """None is lost: some are in quarantine, since the next failure but a few would have been their end."""
    came: set[str] = set()

    def all_came() -> bool:
        """Fail with what is missing and what the agent says of it."""
        came.update(here.take(depth(here.uri, Q)))
        if has_queue(there):
            came.update(each.body.decode() for each in messages(there.uri, QUARANTINE, depth(there.uri, QUARANTINE)))
        missing = sorted(set(waiting) - came)
        assert not missing, (missing, ask(agent, "/api/links"))
        return True

    eventually(all_came, ignoring=AssertionError, what="all is here or in quarantine")

    def is_idle() -> bool:
        [found] = ask(agent, "/api/links")
        return found["error"] is None and found["in_flight"] == 0

    eventually(is_idle, what="nothing is left to do")


@pytest.mark.parametrize(("release", "kind"), [("trixie", "restart"), ("trixie", "cut"), ("sid", "cut")])
def test_many_failures_lose_nothing(
    agent_of: AgentOf,
    here: Site,
    site_on: SiteOn,
    broker_on: Callable[..., Node],
    proxy_to: ProxyTo,
    *,
    release: str,
    kind: str,
) -> None:
    """On 4.0 every return counts, on 4.3 those of a lost connection."""
    there = site_on(broker_on(release, name="second"))
    agent, again, proxy = failing(agent_of, here, there, proxy_to, waiting=FEW)
    for _ in range(OFTEN):
        again(proxy.cut if kind == "cut" else lambda: tell(agent, "restart"))
    here.node.admin.delete("policies", here.vhost, "full")
    check_all_there(agent, here, there, FEW)
    assert agent.terminate() == 0


def test_the_head_of_a_backlog_outlives_a_link_that_breaks_over_and_over(
    agent_of: AgentOf, here: Site, site_on: SiteOn, broker_on: Callable[..., Node], proxy_to: ProxyTo
) -> None:
    there = site_on(broker_on("sid", name="second"))
    agent, again, proxy = failing(agent_of, here, there, proxy_to, waiting=WAITING)
    for _ in range(OFTEN):  # what a stop gives back isn't counted, where the broker allows it
        again(lambda: tell(agent, "restart"))
    assert size(agent) == read_limits.CAREFUL
    for _ in range(OFTEN):  # what a lost connection gives back is; so next to nothing is at stake
        again(proxy.cut)
    here.node.admin.delete("policies", here.vhost, "full")
    check_all_there(agent, here, there, WAITING)

    def trusts() -> bool:
        there.publish(
            ["more"] * 10 * read_limits.CAREFUL
        )  # the prefetch of a quorum queue is changed while it is used up
        assert size(agent) >= read_limits.START_PREFETCH, only(agent)  # more while it keeps places for what was refused
        return True

    eventually(trusts, ignoring=AssertionError)
    assert agent.terminate() == 0
