"""Messages in quarantine are shown wherever somebody looks, also after a restart, until nobody has to care any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import link
from tests.integration.quarantine.scene import LARGE, QUARANTINE, only, publish_one
from tests.integration.shovels.shoveling import named, shovel, shovels
from tests.integration.status.asking import metric
from tests.lab.lab import Lab
from tests.lab.waiting import DEADLINE, eventually

GAUGE = "federation_agent_quarantine_messages"
HURRIED = "tests.integration.quarantine.hurried"


def overview(agent: Agent) -> dict[str, Any]:
    found: dict[str, Any] = ask(agent, "/api/overview")["quarantine"]
    return found


def wait_for(agent: Agent, **expected: Any) -> None:
    def is_known() -> bool:
        assert (found := overview(agent)) == found | expected
        return True

    eventually(is_known, ignoring=(OSError, AssertionError))


def run(lab: Lab, agent: Agent, *arguments: str, status: int) -> str:
    ran = lab.agents.run(
        (*arguments, "--url", f"http://127.0.0.1:{agent.port}"), cwd=agent.directory, environment={}, deadline=DEADLINE
    )
    assert ran.status == status, ran
    return ran.out


def test_they_are_shown_until_they_are_gone(agent_of: AgentOf, lab: Lab, here: Site, there: Site) -> None:
    here.exchange().queue("#")
    there.exchange()
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start(HURRIED)
    agent.wait_for("running", link(here))
    there.wait_bound("#")
    wait_for(agent, messages=0, is_exact=True, quarantined=0)
    assert "quarantine" not in run(lab, agent, "status", status=0)
    for number in range(2):
        publish_one(there, X, f"k.{number}", LARGE)
    wait_for(agent, messages=2, is_exact=True, quarantined=2)
    heads, row = run(lab, agent, "links", "-o", "wide", status=0).splitlines()[1:3]
    assert row.split()[heads.split().index("QUARANTINED")] == "2"
    agent.wait_for("running", link(here))
    first, *facts = run(lab, agent, "status", status=1).splitlines()
    assert first == "DEGRADED: 2 messages in quarantine; 1 link, 1 running"
    assert "quarantine  2 messages: federation-agent quarantine list -c FILE" in facts
    assert metric(agent, GAUGE) == 2

    assert agent.terminate() == 0
    agent.start(HURRIED)
    agent.wait_for("running", link(here))
    wait_for(agent, messages=2, is_exact=True, quarantined=0)
    assert only(agent)["quarantined"] == 0
    assert run(lab, agent, "status", status=1).startswith("DEGRADED: 2 messages in quarantine")

    lab.agents.run(
        ("quarantine", "drop", "-c", str(agent.path), "--all"), cwd=agent.directory, environment={}, deadline=DEADLINE
    )
    wait_for(agent, messages=0)
    assert run(lab, agent, "status", status=0).startswith("FINE: 1 link, 1 running")
    assert agent.terminate() == 0


@pytest.mark.thorough
def test_a_vhost_that_several_links_come_from_counts_once(
    agent_of: AgentOf, lab: Lab, here: Site, there: Site, name: Callable[[str], str]
) -> None:
    """They have users of their own, so each has a connection; and both looked before anything was there."""
    user = name("user")
    there.node.admin.user(user, "p")
    there.node.admin.permissions(there.vhost, user)
    there.queue(name="src").queue(name="other")
    other = shovel(there, here, src_queue="other") | {"src-uri": there.node.uri(there.vhost, user, "p")}
    sections = {"shovels": {"one": shovel(there, here), "two": other}}
    agent = agent_of(here.node).write({here.vhost: sections}).start(HURRIED)
    agent.wait_running(2)
    wait_for(agent, messages=0, is_exact=True)
    publish_one(there, "", "src", LARGE)
    wait_for(agent, messages=1, is_exact=True)
    assert run(lab, agent, "status", status=1).startswith("DEGRADED: 1 message in quarantine; 2 links, 2 running")
    publish_one(there, "", QUARANTINE, "by hand")
    wait_for(agent, messages=2, is_exact=True)
    assert agent.terminate() == 0


@pytest.mark.versions
def test_who_may_not_look_hears_how_many_were_put_there(
    agent_of: AgentOf, lab: Lab, here: Site, site_on: SiteOn, name: Callable[[str], str]
) -> None:
    """Brokers of 4.3 show a queue only to users who have any permission on it."""
    there, user = site_on(lab.shared("broker", release="sid")), name("user")
    admin = there.node.admin
    admin.user(user, "p")
    admin.permissions(there.vhost, user, configure="^src$", write="^amq.default$", read="^src$")
    admin.queue(there.vhost, QUARANTINE)
    definition = shovel(there, here) | {"src-uri": there.node.uri(there.vhost, user, "p")}
    agent = agent_of(here.node).write({here.vhost: shovels(definition)}).start(HURRIED)
    agent.wait_for("running", named(here))
    publish_one(there, "", "src", LARGE)
    wait_for(agent, messages=None, is_exact=False, unseen=1, quarantined=1)
    shown = run(lab, agent, "status", status=1)
    assert shown.startswith("DEGRADED: 1 message put in quarantine; 1 link, 1 running\n")
    assert "\nquarantine  not known; 1 message put there since the agent started: federation-agent" in shown
    assert metric(agent, GAUGE) is None
    assert agent.terminate() == 0
    admin.delete("users", user)
