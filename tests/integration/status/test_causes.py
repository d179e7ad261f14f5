"""Which broker a cause blames, and since when, between real brokers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest

from tests.acceptance.command import federation_agent
from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.integration.federation.test_api import ask
from tests.integration.shovels.shoveling import named, shovel
from tests.integration.status.asking import get
from tests.integration.status.test_lag import alarm
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import DEADLINE, eventually

QUICKLY = {"reconnect_delay": 1}


def causes(agent: Agent) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(agent, "/api/causes")["causes"]
    return found


def wait_causes(agent: Agent, *expected: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Until these are all: side, broker, trouble."""

    def told() -> list[tuple[str, str, str]]:
        return sorted((each["side"], each["broker"], each["trouble"]) for each in causes(agent))

    eventually(lambda: told() == sorted(expected), what=f"causes are {expected}, not {told()}", ignoring=OSError)
    return causes(agent)


def test_shovels_to_another_broker_blame_it_and_not_the_downstream(
    agent_of: AgentOf, broker: Node, here: Site, borrowed: Borrowed, site_on: SiteOn
) -> None:
    """Its alarm, what is missing there, and a permission that is missing there."""
    there = site_on(borrowed())
    far = there.node.cluster_name
    flowing = shovel(here, there, **QUICKLY)
    lost = shovel(here, there, src_queue="src2", dest_exchange="nx", **QUICKLY)
    agent = agent_of(broker).write({here.vhost: {"shovels": {"flowing": flowing, "lost": lost}}}).start()
    agent.wait_for("running", named(here, "flowing"))
    [cause] = wait_causes(agent, ("destination", far, "object missing"))
    assert f"Create on {far} what the error names" in cause["advice"]
    with alarm(there.node):
        here.publish(numbered(10), "src", exchange="")
        found = wait_causes(agent, ("destination", far, "object missing"), ("destination", far, "memory alarm"))
        assert any(f"On {far}, `rabbitmq-diagnostics memory_breakdown`" in each["advice"] for each in found)
        verdict = get(agent, "/api/causes")["verdict"]
        assert verdict.startswith(f"{far} (destination): memory alarm for "), verdict
        shown = federation_agent("status", "--url", f"http://127.0.0.1:{agent.port}").out
        assert f"{broker.cluster_name} (downstream)" not in shown
        began = agent.wait_logged("trouble begins", 2)
    wait_causes(agent, ("destination", far, "object missing"))
    [over] = agent.wait_logged("trouble is over")
    assert (over["broker"], over["trouble"], over["links"]) == (far, "memory alarm", 1)
    assert {each["trouble"] for each in began} == {"object missing", "memory alarm"}


def test_advice_for_a_shovel_names_the_broker_at_the_end_that_refuses(
    agent_of: AgentOf, name: Callable[[str], str], here: Site, there: Site
) -> None:
    """Pasted on the other one, `set_permissions` would replace what the user may do there."""
    user = name("weak")
    for site in (here, there):
        site.node.admin.user(user, "pw")
        site.node.admin.permissions(site.vhost, user, write="", read="")
        site.queue(name="src").queue(name="dest")
    writes = shovel(here, there) | {"dest-uri": there.node.uri(there.vhost, user, "pw")}
    reads = shovel(here, there) | {"src-uri": here.node.uri(here.vhost, user, "pw")}
    agent = agent_of(here.node).write({here.vhost: {"shovels": {"writes": writes, "reads": reads}}}).start()
    far, own = there.node.cluster_name, here.node.cluster_name
    there.node.admin.permissions(there.vhost, user, write="")
    here.node.admin.permissions(here.vhost, user, read="")
    agent.wait_for("running", named(here, "writes"))
    here.publish(numbered(1), "src", exchange="")
    wait_causes(agent, ("downstream", own, "permission missing"), ("destination", far, "permission missing"))
    for shown, broker, needs in (("writes", far, "write"), ("reads", own, "read")):
        described = federation_agent("describe", f"{here.vhost}/{shown}", "--url", f"http://127.0.0.1:{agent.port}").out
        assert f"Do:      On {broker}, user {user!r} needs {needs} on " in described, described


def test_a_broker_that_links_come_from_and_go_to_is_one_cause(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: Callable[[Node], Proxy]
) -> None:
    """The remote one, and the downstream itself, which a shovel only reads from."""
    network, node = proxy_to(there.node), there.node
    uri = node.uri(there.vhost, port=network.port)
    here.exchange().queue("k")
    there.exchange()
    sections = federated(there, **{"reconnect-delay": 1})
    sections["upstreams"]["origin"]["uri"] = uri
    shovels = {
        "there": shovel(here, there, **QUICKLY) | {"dest-uri": uri},
        "back": shovel(there, here, **QUICKLY) | {"src-uri": uri},
    }
    agent = agent_of(here.node).write({here.vhost: sections | {"shovels": shovels}}).start()
    for name in shovels:
        agent.wait_for("running", named(here, name))
    agent.wait_for("running", (here.vhost, "fed.x", "origin"))
    network.close()
    [cause] = wait_causes(agent, ("upstream", node.cluster_name, "unreachable"))
    eventually(lambda: len(causes(agent)[0]["links"]) == 3, what="all three links are of that cause")
    assert node.cluster_name in cause["advice"]


@pytest.mark.thorough
def test_a_downstream_that_is_away_is_one_cause_since_then(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: Callable[[Node], Proxy]
) -> None:
    """Although a link has been in backoff for another reason before, and a shovel only reads from it."""
    network = proxy_to(here.node)
    uri = here.node.uri(port=network.port)
    missing = shovel(there, here, src_exchange="nx", **QUICKLY) | {
        "dest-uri": here.node.uri(here.vhost, port=network.port)
    }
    reads = shovel(here, there, **QUICKLY) | {"src-uri": here.node.uri(here.vhost, port=network.port)}
    here.exchange().queue("k")
    there.exchange()
    sections = federated(there, **{"reconnect-delay": 1}) | {"shovels": {"missing": missing, "reads": reads}}
    agent = agent_of(here.node, uri=uri).write({here.vhost: sections}).start()
    agent.wait_for("running", named(here, "reads"))
    agent.wait_for("running", (here.vhost, "fed.x", "origin"))
    wait_causes(agent, ("upstream", there.node.cluster_name, "object missing"))
    time.sleep(4)  # for so long it has been in backoff already
    network.close()
    closed = time.time()

    def told() -> list[dict[str, Any]]:
        return [each for each in causes(agent) if len(each["links"]) == 3]

    [cause] = eventually(told, what="one cause of all three")
    assert (cause["side"], cause["broker"]) == ("downstream", here.node.cluster_name), json.dumps(causes(agent))
    since = _seconds(cause["since"])
    assert closed - 2 <= since <= closed + DEADLINE / 4, (closed, since)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


@contextmanager
def cutting(network: Proxy, every: float) -> Iterator[list[float]]:
    """Cuts all connections again and again; when."""
    over, cuts = threading.Event(), list[float]()

    def cut() -> None:
        while not over.wait(every):
            cuts.append(time.time())
            network.cut()

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        yield cuts
    finally:
        over.set()
        cutter.join()


@pytest.mark.thorough
def test_a_link_that_is_cut_again_and_again_stays_a_cause_since_the_first_cut(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: Callable[[Node], Proxy]
) -> None:
    network = proxy_to(there.node)
    here.exchange().queue("k")
    there.exchange()
    upstream = {"origin": {"uri": there.node.uri(there.vhost, port=network.port), "reconnect-delay": 1}}
    agent = agent_of(here.node).write({here.vhost: federated(there) | {"upstreams": upstream}}).start()
    agent.wait_for("running", (here.vhost, "fed.x", "origin"))
    began = time.time()
    with cutting(network, 2) as cuts:
        [cause] = eventually(
            lambda: [each for each in causes(agent) if "again and again" in each["headline"]], what="it recurs"
        )
        until = time.time() + 4
        while time.time() < until:
            assert [each["trouble"] for each in causes(agent)] == ["connection lost"]
            time.sleep(0.2)
    agent.wait_for("running", (here.vhost, "fed.x", "origin"))

    def interrupted() -> list[dict[str, Any]]:
        return [each for each in causes(agent) if each["headline"].endswith("1 of 1 link interrupted")]

    [cause] = eventually(interrupted, what="it runs, and has been interrupted")
    assert "connection lost again and again for " in cause["headline"]
    assert began <= _seconds(cause["since"]) <= cuts[2]


def test_the_name_of_an_exchange_is_no_cause(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Sentences were searched for causes: a broker with an exchange of this name was taken for one that is away."""
    name, user = "connection refused", f"few {there.vhost}"
    there.node.admin.user(user, "few")
    there.node.admin.permissions(there.vhost, user, configure="^federation")
    here.exchange(name).queue("k", exchange=name)
    definition = federated(there)
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, user, "few")
    [policy] = definition["policies"].values()
    policy["pattern"] = f"^{name}$"
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("invalid", (here.vhost, name, "origin"))
    [cause] = wait_causes(agent, ("upstream", there.node.cluster_name, "permission missing"))
    facts = {
        "kind": "permission missing", "side": "upstream", "broker": there.node.cluster_name, "user": user,
        "vhost": there.vhost, "object": name, "object_type": "exchange", "permission": "configure",
    }  # fmt: skip
    [link] = get(agent, "/api/links")
    assert (link["status"], link["reason"], link["failure"]) == ("invalid", "upstream_refused", facts)
    assert cause["failure"] == facts
    assert f"set_permissions -p {there.vhost} '{user}' '^(connection refused$|federation" in cause["advice"]
    assert 'trouble="permission missing"' in ask(agent, "/metrics")
