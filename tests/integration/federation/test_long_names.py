"""Names of which brokers from 4.0 on can't say that they are missing: they close the connection instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_planned import plan
from tests.lab.node import Node
from tests.lab.waiting import eventually

BESIDE = "fed.beside"
LONGEST = 253  # of a queue, so that the internal exchange has room for its letter


def long_name(here: Site) -> str:
    """Not in ASCII, and as long as the name of the upstream queue allows."""
    rest = f"federation:  -> {here.node.cluster_name}:{here.vhost}:{X}"
    bytes_left = LONGEST - len(rest.encode())
    return "x" * (bytes_left % 2) + "ü" * (bytes_left // 2)


def publish(there: Site, exchange: str) -> None:
    """Over the HTTP API: aio-pika refuses such names."""
    message = {"routing_key": "k", "payload": "m", "payload_encoding": "string", "properties": {}}
    there.node.admin.post("exchanges", there.vhost, exchange, "publish", body=message)


@pytest.mark.versions
def test_a_link_of_a_long_name_runs_and_disturbs_no_other(
    agent_of: AgentOf, here: Site, site_on: SiteOn, broker_on: Callable[..., Node]
) -> None:
    there, name = site_on(broker_on("sid")), long_name(here)
    definition = federated(there)
    definition["upstreams"]["origin"]["reconnect-delay"] = 1
    agent = agent_of(here.node).write({here.vhost: definition})
    here.exchange(BESIDE)
    agent.start().wait_for("running", (here.vhost, BESIDE, "origin"))
    here.exchange().queue("k")
    definition["upstreams"]["long"] = {"uri": there.uri, "exchange": name, "reconnect-delay": 1}
    definition["policies"]["long"] = {
        "pattern": f"^{X}$",
        "apply-to": "exchanges",
        "priority": 1,
        "definition": {"federation-upstream": "long"},
    }
    definition["policies"]["federate"]["definition"] = {"federation-upstream": "origin"}
    agent.write({here.vhost: definition}).reload()
    agent.wait_for("running", (here.vhost, X, "long"))
    there.wait_bound("k", exchange=name)
    [planned] = [link for link in plan(agent, agent.path)["links"] if link["upstream"] == "long"]
    assert planned["outlook"] == "run", planned["reason"]
    assert {action["verb"] for action in planned["actions"] if action["kind"] in {"queue", "binding"}} == {"keep"}
    publish(there, name)
    assert here.take(1) == ["m"]
    here.bind("l")
    there.wait_bound("k", "l", exchange=name)
    assert agent.history(here.vhost, BESIDE, "origin") == ["running"]
    agent.write({}).reload()
    eventually(lambda: not there.links_objects(), what="nothing of links is left")
