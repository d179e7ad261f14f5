"""A cause that somebody knows comes behind a new one, until it grows, whichever agent of the group runs the link."""

from __future__ import annotations

import json
from typing import Any

from tests.acceptance.command import Done, federation_agent
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.integration.status.asking import get, remembered, url
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}
REASON = "the consumer is being fixed"


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
    """What is known of the link goes with it to an agent that knows nothing else of it."""
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

    [link] = [each for each in get(agent, "/api/links") if each["exchange"] == "fed.orders"]
    with remembered(agent, link["id"], "acknowledged"):
        done = command(agent, "ack", full["id"][:6], "--for", "2h", "--reason", REASON)
        assert (done.status, REASON in done.out) == (0, True), done
    agent.kill()
    agent = agent_of(here.node)
    settings = agent.settings(**{"stall-after": 2})
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
