"""A cause that somebody knows comes behind a new one, until it grows; a restart of the agent doesn't change that."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.acceptance.command import Done, federation_agent
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.status.asking import get, url
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}
REASON = "the consumer is being fixed"
WRITTEN = 4.0  # seconds until what is remembered is at the broker


def command(agent: Agent, *arguments: str) -> Done:
    return federation_agent(*arguments, "--url", url(agent))


def wait_causes(agent: Agent, *expected: tuple[str, int]) -> list[dict[str, Any]]:
    """Until these are all, in this order: the trouble, and how many links it stops."""

    def found() -> list[dict[str, Any]]:
        causes: list[dict[str, Any]] = get(agent, "/api/causes")["causes"]
        return causes

    def seen() -> list[tuple[str, int]]:
        return [(each["trouble"], len(each["links"])) for each in found()]

    eventually(lambda: seen() == list(expected), what=f"causes are {expected}", ignoring=OSError)
    return found()


def test_a_full_queue_that_somebody_knows_comes_behind_what_stops_next(
    agent_of: AgentOf, here: Site, there: Site, site_on: SiteOn
) -> None:
    other = site_on(here.node)
    other.exchange()
    for name in ("fed.orders", "fed.cart"):
        here.exchange(name)
        there.exchange(name)
        here.node.admin.queue(here.vhost, f"full {name}", arguments=FULL)
        here.node.admin.bind(here.vhost, name, f"full {name}", "k")
    agent = agent_of(here.node)
    settings = agent.settings(**{"stall-after": 2})
    agent.write({here.vhost: federated(there)}, agent=settings).start()
    for name in ("fed.orders", "fed.cart"):
        there.wait_bound("k", exchange=name)
    there.publish(numbered(9), exchange="fed.orders")
    [full] = wait_causes(agent, ("nothing confirmed", 1))

    done = command(agent, "ack", full["id"][:6], "--for", "2h", "--reason", REASON)
    assert (done.status, REASON in done.out) == (0, True), done
    time.sleep(WRITTEN)
    agent.kill()
    away = federated(there)
    away["upstreams"]["origin"]["uri"] = "amqp://127.0.0.1:1"
    agent.write({here.vhost: federated(there), other.vhost: away}, agent=settings).start()
    new, known = wait_causes(agent, ("unreachable", 1), ("nothing confirmed", 1))
    assert (new["acknowledged"], known["acknowledged"]["reason"], known["id"]) == (None, REASON, full["id"])
    shown = command(agent, "status")
    assert (shown.status, "(upstream): unreachable for " in shown.out.splitlines()[0]) == (1, True), shown.out
    assert f"\n    {known['acknowledged']['text']}\n" in shown.out
    assert known["acknowledged"]["text"].startswith("acknowledged by ")
    assert json.loads(command(agent, "status", "-o", "json").out)["causes"][1]["acknowledged"]["until"]

    there.publish(numbered(9), exchange="fed.cart")
    grown, _ = wait_causes(agent, ("nothing confirmed", 2), ("unreachable", 1))
    assert (grown["id"], grown["acknowledged"]) == (full["id"], None)
    assert command(agent, "ack", full["id"]).status == 0
    wait_causes(agent, ("unreachable", 1), ("nothing confirmed", 2))
    assert command(agent, "ack", full["id"], "--undo").status == 0
    wait_causes(agent, ("nothing confirmed", 2), ("unreachable", 1))
    assert command(agent, "ack", "ffffffff").status == 5
    assert agent.terminate() == 0


@pytest.mark.thorough
def test_it_goes_with_the_link_to_the_agent_that_takes_it_over(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange()
    there.exchange()
    here.node.admin.queue(here.vhost, "full", arguments=FULL)
    here.node.admin.bind(here.vhost, X, "full", "k")
    agents = [agent_of(here.node), agent_of(here.node)]
    for agent in agents:
        agent.write({here.vhost: federated(there)}, agent=agent.settings(**{"stall-after": 2})).start()
    there.wait_bound("k")
    there.publish(numbered(9))

    def stopped() -> list[Agent]:
        return [each for each in agents if get(each, "/api/causes")["causes"]]

    [runs] = eventually(stopped, what="one of them shows a cause", ignoring=OSError)
    [other] = set(agents) - {runs}
    [cause] = wait_causes(runs, ("nothing confirmed", 1))
    assert command(runs, "ack", cause["id"], "--reason", REASON).status == 0
    time.sleep(WRITTEN)
    runs.kill()
    [known] = wait_causes(other, ("nothing confirmed", 1))
    assert (known["id"], known["acknowledged"]["reason"]) == (cause["id"], REASON)
