"""Messages of links that are no longer defined are found, while anything leads to their broker, or with its address."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_failures import link
from tests.integration.quarantine.scene import LARGE, QUARANTINE, only, publish_one
from tests.lab.lab import Lab
from tests.lab.preloaded import Ran
from tests.lab.user_program import depth
from tests.lab.waiting import DEADLINE, eventually

Quarantine = Callable[..., Ran]
NOTHING = (
    "0 messages in quarantine\n"
    "only brokers of defined links, upstreams and shovels were looked at; --uri looks at another one\n"
)


@pytest.fixture
def one_aside(agent_of: AgentOf, here: Site, there: Site) -> Agent:
    here.exchange().queue("#")
    there.exchange()
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("#")
    publish_one(there, X, "k", LARGE)
    eventually(lambda: only(agent)["quarantined"] == 1, what="it is in quarantine")
    assert agent.terminate() == 0
    return agent


@pytest.fixture
def command(lab: Lab, one_aside: Agent, there: Site) -> Quarantine:
    """`quarantine …`; the environment names the former upstream."""

    def run(what: str, *arguments: str) -> Ran:
        return lab.agents.run(
            ("quarantine", what, "-c", str(one_aside.path), *arguments),
            cwd=one_aside.directory,
            environment={"FORMER": there.uri, "WRONG": there.node.uri(there.vhost, "guest", "not-the-password")},
            deadline=DEADLINE,
        )

    return run


def test_they_are_found_while_anything_leads_to_their_broker(
    one_aside: Agent, command: Quarantine, here: Site, there: Site, site_on: SiteOn
) -> None:
    one_aside.write({here.vhost: federated(there) | {"policies": {}}})  # the upstream is there, and nothing uses it
    listed = command("list", "--format", "json")
    assert listed.status == 0, listed
    [found] = json.loads(listed.out)
    assert (found["vhost"], found["where"]) == (there.vhost, f"upstream origin 127.0.0.1:{there.node.amqp_port}")
    replayed = command("replay", "--all", "--format", "json")
    assert (replayed.status, json.loads(replayed.out)["replayed"]) == (4, 0)
    assert "no definition has this link any more" in replayed.out

    one_aside.write({here.vhost: {}})
    listed = command("list")
    assert (listed.status, listed.out) == (5, NOTHING)
    assert command("drop", "--all").out.startswith("0 messages dropped\nonly brokers of defined")
    assert command("drop", "--all", "--uri", site_on(there.node).uri).status == 5, "no other broker is looked at then"
    assert depth(there.uri, QUARANTINE) == 1
    for what in ("list", "show"):
        shown = command(what, "--uri", "${env:FORMER}", "--format", "json")
        assert (shown.status, len(json.loads(shown.out))) == (0, 1), shown
        assert json.loads(shown.out)[0]["where"] == f"broker of --uri 127.0.0.1:{there.node.amqp_port}"
    dropped = command("drop", "--all", "--uri", "${env:FORMER}", "--format", "json")
    assert json.loads(dropped.out) == {"dropped": 1, "problems": []}
    assert command("list", "--uri", "${env:FORMER}").out == "0 messages in quarantine\n"

    refused = command("list", "--uri", "${env:WRONG}")
    assert "broker of --uri 127.0.0.1" in refused.err
    wrong = [
        refused,
        command("list", "--uri", "amqp://u:not-the-password@h:port"),
        command("list", "--uri", "${env:NONE}"),
    ]
    assert [each.status for each in wrong] == [4, 2, 2]
    assert "--uri: ${env:NONE}: the environment variable isn't set" in wrong[-1].err
    assert not any("not-the-password" in each.out + each.err for each in wrong), (
        "an address is shown without its secret"
    )
