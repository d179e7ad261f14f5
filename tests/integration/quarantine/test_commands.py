"""`quarantine list`, `show`, `replay` and `drop`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Q, Site, X, federated
from tests.integration.federation.test_failures import link
from tests.integration.quarantine.scene import LARGE, LIMIT, QUARANTINE, only, publish_one
from tests.integration.status.asking import get
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.user_program import depth, messages
from tests.lab.waiting import DEADLINE, eventually

SET_LIMIT = "application:set_env(rabbit, max_message_size, {})."


class Commands:
    def __init__(self, lab: Lab, agent: Agent) -> None:
        self._lab = lab
        self._agent = agent

    def run(self, *arguments: str, status: int = 0) -> Any:
        arguments = ("quarantine", arguments[0], "-c", str(self._agent.path), "--format", "json", *arguments[1:])
        ran = self._lab.agents.run(arguments, cwd=self._agent.directory, environment={}, deadline=DEADLINE)
        assert ran.status == status, ran
        return json.loads(ran.out) if ran.out else ran.err


@pytest.fixture
def narrow(borrowed: Borrowed) -> Node:
    """One whose limit some tests change."""
    return borrowed(conf=[f"max_message_size = {LIMIT}"])


RULES: dict[str, Any] = {"set-headers": {"site": "eu"}, "remove-headers": ["secret*"]}
GIVEN: dict[str, Any] = {"secret": "s", "site": "us"}


@pytest.fixture
def filled(agent_of: AgentOf, lab: Lab, here: Site, there: Site) -> tuple[Agent, Commands]:
    """Three messages of one link, which changes headers."""
    here.exchange().queue("#")
    there.exchange()
    agent = agent_of(here.node).write({here.vhost: federated(there, **RULES)}).start()
    agent.wait_for("running", link(here))
    for number in range(3):
        headers = GIVEN | {"n": number}
        publish_one(there, X, f"k.{number}", f"{number}{LARGE}", headers=headers, type="t", expiration=3_600)
    eventually(lambda: only(agent)["quarantined"] == 3, what="all are in quarantine")
    return agent, Commands(lab, agent)


def test_they_are_listed_and_shown_and_dropped(filled: tuple[Agent, Commands], here: Site, there: Site) -> None:
    agent, commands = filled
    listed = commands.run("list")
    assert [each["routing_key"] for each in listed] == ["k.0", "k.1", "k.2"]
    assert listed[0] | {"since": ""} == {
        "link": only(agent)["id"],
        "reason": "too_large",
        "since": "",
        "exchange": X,
        "routing_key": "k.0",
        "bytes": len(LARGE) + 1,
        "where": f"upstream origin 127.0.0.1:{there.node.amqp_port}",
        "vhost": there.vhost,
    }
    [shown] = commands.run("show")
    assert shown["body"] == f"0{LARGE}"[:1_000]
    assert (shown["headers"], shown["properties"]["type"]) == (GIVEN | {"n": 0}, "t"), "as it came"
    assert len(commands.run("list", "--link", f"{only(agent)['vhost']}/{X}")) == 3
    assert len(commands.run("list", "--link", only(agent)["id"][:5], "--reason", "too_large")) == 3
    assert commands.run("list", "--reason", "refused", status=5) == []
    assert "is no age" in commands.run("list", "--older-than", "soon", status=2)

    definition = federated(there)
    definition["upstreams"]["second"] = {"uri": there.uri, "exchange": "second"}
    agent.write({here.vhost: definition})
    assert "names 2 links" in commands.run("drop", "--link", f"{here.vhost}/{X}", status=2)
    assert commands.run("drop", "--older-than", "1h", status=5)["dropped"] == 0
    assert depth(there.uri, QUARANTINE) == 3
    assert commands.run("drop", "--reason", "too_large") == {"dropped": 3, "problems": []}
    assert depth(there.uri, QUARANTINE) == 0


def test_they_are_replayed_in_order_as_they_were(filled: tuple[Agent, Commands], here: Site, there: Site) -> None:
    """Once the downstream takes them; what it still doesn't take stays. The link's rules hold only then. A forged one
    goes nowhere and holds up no other."""
    agent, commands = filled
    assert "give --all" in commands.run("replay", status=2)
    refused = commands.run("replay", "--all", status=4)
    assert refused["replayed"] == 0
    assert "larger than" in refused["problems"][0]
    eventually(lambda: depth(there.uri, QUARANTINE) == 3, what="all are still there")

    here.node.eval(SET_LIMIT.format(LIMIT * 2))
    try:
        assert commands.run("replay", "--link", only(agent)["id"]) == {"replayed": 3, "problems": []}
    finally:
        here.node.eval(SET_LIMIT.format(LIMIT))
    assert depth(there.uri, QUARANTINE) == 0

    here.exchange("secret").queue("#", name="hidden", exchange="secret")
    forged = {
        "x-quarantine-reason": "too_large",
        "x-quarantine-link": only(agent)["id"],
        "x-quarantine-time": datetime.now(UTC),
        "x-quarantine-exchange": "secret",
        "x-quarantine-routing-key": "k",
    }
    publish_one(there, "", QUARANTINE, "forged", headers=forged)
    publish_one(there, "", QUARANTINE, "odd", headers=forged | {"x-quarantine-expiration": "9" * 300})
    publish_one(there, X, "k.3", f"3{LARGE}")
    eventually(lambda: only(agent)["quarantined"] == 4, what="another is in quarantine, behind these")
    here.node.eval(SET_LIMIT.format(LIMIT * 2))
    try:
        outcome = commands.run("replay", "--all", status=4)
    finally:
        here.node.eval(SET_LIMIT.format(LIMIT))
    assert outcome["replayed"] == 1
    [problem] = outcome["problems"]
    assert problem.endswith("'secret', where its link never goes: drop it")
    assert (depth(here.uri, "hidden"), depth(there.uri, QUARANTINE)) == (0, 2)
    found = messages(here.uri, Q, 4)
    assert [each.body.decode()[0] for each in found] == ["0", "1", "2", "3"]
    first = found[0]
    assert (first.routing_key, first.type, first.expiration) == ("k.0", "t", 3_600)
    headers = {name: value for name, value in first.headers.items() if name != "x-received-from"}
    assert headers == {"n": 0, "site": "eu"}, "as its link would have published it"
    assert "x-received-from" in first.headers
    commands.run("drop", "--all")
    assert commands.run("replay", "--all", status=5)["replayed"] == 0


def test_brokers_of_one_name_are_two_and_two_addresses_of_a_broker_are_one(
    agent_of: AgentOf, lab: Lab, borrowed: Borrowed, here: Site, there: Site
) -> None:
    with ExitStack() as ended:
        node = borrowed()
        ended.callback(node.admin.put, "cluster-name", body={"name": node.cluster_name})
        node.admin.put("cluster-name", body={"name": there.node.admin.get("cluster-name")["name"]})
        other = Site(node, ended.enter_context(node.admin.temporary_vhost(there.vhost)))
        here.exchange().queue("#")
        definition = federated(there)
        also = there.uri.replace("127.0.0.1", "localhost")
        definition["upstreams"] |= {"namesake": {"uri": other.uri}, "again": {"uri": also, "exchange": "other.x"}}
        for site, name in (published := ((there, X), (there, "other.x"), (other, X))):
            site.exchange(name)
        agent = agent_of(here.node).write({here.vhost: definition}).start()
        eventually(
            lambda: [one["status"] for one in links_of(agent)] == ["running"] * 3, what="all run", ignoring=OSError
        )
        for site, name in published:
            publish_one(site, name, "k", LARGE)
        eventually(lambda: sum(one["quarantined"] for one in links_of(agent)) == 3, what="all are in quarantine")
        commands = Commands(lab, agent)
        listed = commands.run("list")
        assert len(listed) == 3
        assert len({each["link"] for each in listed}) == 3
        assert commands.run("drop", "--reason", "too_large")["dropped"] == 3
        assert commands.run("list", status=5) == []


def test_a_quarantine_that_may_not_be_read_keeps_nobody_from_the_others(
    filled: tuple[Agent, Commands], here: Site, there: Site, site_on: SiteOn, name: Callable[[str], str]
) -> None:
    agent, commands = filled
    own = only(agent)["id"]
    closed, user = site_on(there.node), name("user")
    there.node.admin.user(user, "p")
    there.node.admin.permissions(closed.vhost, user, read="")
    there.node.admin.queue(closed.vhost, QUARANTINE)
    definition = federated(there)
    refused = {"uri": there.node.uri(closed.vhost, user=user, password="p")}
    definition["upstreams"] = {"closed": refused, **definition["upstreams"]}
    agent.write({here.vhost: definition})
    publish_one(closed, "", QUARANTINE, "hidden")
    assert len(commands.run("list", status=4)) == 3
    replayed = commands.run("replay", "--all", status=4)
    assert [replayed["replayed"], len(replayed["problems"])] == [0, 2]
    assert len(commands.run("list", "--link", own)) == 3, "what is beside another source concerns no message of it"
    dropped = commands.run("drop", "--all", status=4)
    assert dropped["dropped"] == 3
    [problem] = dropped["problems"]
    assert "looking into queue" in problem


def links_of(agent: Agent) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(agent, "/api/links")
    return found
