"""`links`, `restart`, `pause` and `resume` with an agent between two brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable

import pytest
import yaml

from tests.acceptance.command import COMMAND, Done, federation_agent
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.status.asking import url
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

TOKEN = "t0ken"
GONE = "ffffffff"


def command(agent: Agent, *arguments: str, token: str = TOKEN) -> Done:
    return federation_agent(*arguments, "--url", url(agent), FEDERATION_AGENT_TOKEN=token)


def statuses(agent: Agent, *arguments: str) -> dict[str, str]:
    """By vhost."""
    done = command(agent, "links", "--format", "json", *arguments)
    assert done.status == 0, done
    return {link["vhost"]: link["status"] for link in json.loads(done.out)}


@pytest.fixture
def other(broker: Node, site_on: SiteOn) -> Site:
    return site_on(broker)


def test_links_are_shown_and_acted_on(agent_of: AgentOf, broker: Node, here: Site, other: Site, there: Site) -> None:
    agent = agent_of(broker)
    for site in (here, other):
        site.exchange().queue("k")
    settings = {"http": {"listen": f"127.0.0.1:{agent.port}", "token": TOKEN}}
    agent.write({here.vhost: federated(there), other.vhost: federated(there)}, agent=settings).start()
    agent.wait_running(2)
    first = next(
        link for link in json.loads(command(agent, "links", "--format", "json").out) if link["vhost"] == here.vhost
    )
    shown = command(agent, "links", "--vhost", here.vhost)
    summary, head, row = shown.out.splitlines()
    assert summary.startswith("1 link: 1 running; ")
    assert head.split()[:4] == ["STATUS", "ID", "KIND", "VHOST"]
    assert row.split()[:6] == ["running", first["id"], "exchange", here.vhost, X, "origin"]

    assert command(agent, "pause", first["id"]).status == 0
    eventually(lambda: statuses(agent) == {here.vhost: "paused", other.vhost: "running"}, what="the one is paused")
    assert command(agent, "resume", "--vhost", here.vhost).out == f"{first['id']} resume\n"
    eventually(lambda: set(statuses(agent).values()) == {"running"}, what="both run")
    assert command(agent, "restart", "--all", "--vhost", here.vhost).out == f"{first['id']} restart\n"
    eventually(lambda: set(statuses(agent).values()) == {"running"}, what="both run")
    assert len(command(agent, "restart", "--upstream", "origin").out.splitlines()) == 2
    eventually(lambda: set(statuses(agent).values()) == {"running"}, what="both run again")

    watching = ["env", "--default-signal=INT", COMMAND, "links", "--watch", "--vhost", here.vhost, "--url", url(agent)]
    with subprocess.Popen(watching, env={**os.environ, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE) as process:
        assert process.stdout
        told = [process.stdout.readline().split()[0] for _ in range(6)]
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert (told, process.returncode) == ([b"1", b"STATUS", b"running"] * 2, 0)

    unknown = command(agent, "restart", GONE, first["id"], GONE)
    assert (unknown.status, unknown.out) == (5, f"{first['id']} restart\n")
    assert unknown.errors == [f"agent {url(agent)}: no link has the id or the vhost/name '{GONE}'; `links` lists them"]
    partly = command(agent, "restart", GONE, first["id"], "--format", "json")
    assert partly.status == 5
    assert json.loads(partly.out) == {"action": "restart", "links": [first["id"]], "missing": [GONE]}
    for arguments in (("pause", "--vhost", "nowhere"), ("pause", "--all", "--vhost", "nowhere")):
        nowhere = command(agent, *arguments)
        assert (nowhere.status, nowhere.out) == (5, "")
        assert nowhere.errors == [f"agent {url(agent)}: no link is in vhost 'nowhere'; `links` lists them"]
    unknown = command(agent, "restart", "--upstream", "orign")
    assert unknown.errors == [f"agent {url(agent)}: no link is of upstream or cluster 'orign'; `links` lists them"]
    refused = command(agent, "pause", "--all", token="wrong")
    assert (refused.status, len(refused.errors)) == (4, 1)
    assert "the token is refused" in refused.err
    (agent.directory / "token").write_text(f"{TOKEN}\n")
    by_file = ("pause", "--all", "--token-file", str(agent.directory / "token"))
    assert command(agent, *by_file, token="").status == 0
    eventually(lambda: set(statuses(agent).values()) == {"paused"}, what="both are paused")


def test_nothing_is_fine_before_links_run(
    agent_of: AgentOf, broker: Node, here: Site, there: Site, proxy_to: Callable[[Node], Proxy]
) -> None:
    network = proxy_to(there.node)
    network.blackhole()
    here.exchange().queue("k")
    definition = federated(there)
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, port=network.port)
    agent = agent_of(broker).write({here.vhost: definition}).start()
    eventually(lambda: command(agent, "links").out.startswith("1 link: 1 starting"), what="the link is there")
    done = command(agent, "status")
    assert (done.status, done.out.splitlines()[0]) == (1, "STARTING: 1 link, 1 starting")
    network.restore()
    done = command(agent, "status", "--wait", "--timeout", "30")
    assert (done.status, done.out.splitlines()[0]) == (0, "FINE: 1 link, 1 running")


def test_a_link_by_its_name_and_the_whole_at_a_glance(agent_of: AgentOf, broker: Node, here: Site, there: Site) -> None:
    agent = agent_of(broker)
    here.exchange().queue("k")
    settings = {"http": {"listen": f"127.0.0.1:{agent.port}", "token": TOKEN}}
    broken = {"broken": {"uri": "amqp://nobody:wrong@127.0.0.1:1"}}
    definitions = federated(there)
    definitions["upstreams"] |= broken
    agent.write({here.vhost: definitions}, agent=settings).start()
    eventually(lambda: _by_upstream(agent).get("broken", ("", ""))[1] == "backoff", what="one link fails")
    eventually(lambda: _by_upstream(agent)["origin"][1] == "running", what="the other runs")
    found = _by_upstream(agent)
    name = f"{here.vhost}/{X}"

    several = command(agent, "pause", name)
    assert (several.status, "names 2 links" in several.err) == (5, True)
    assert command(agent, "describe", GONE).status == 5
    one = found["broken"][0]
    described = command(agent, "describe", one[:6])
    assert described.status == 0
    for part in (
        f"Link:    {name}",
        "Status:  backoff for ",
        "Error:   ",
        "Do:      Check that ",
        "Events:",
        "appeared",
    ):
        assert part in described.out
    assert json.loads(command(agent, "describe", one, "-o", "json").out)["history"]["transitions"]
    began = json.loads(command(agent, "events", one[:6], "--since", "1h", "--format", "json").out)[0]
    assert (began["previous"], began["status"], began["reason"]) == (None, "starting", "appeared")
    assert f"  {one}  {name} from broken: starting → backoff (upstream_" in command(agent, "events").out
    assert command(agent, "events", GONE).status == 5

    assert command(agent, "pause", one).status == 0
    eventually(lambda: _by_upstream(agent)["broken"][1] == "paused", what="it is paused")
    assert "it stays paused" in command(agent, "restart", one).out
    assert command(agent, "status").status == 0
    assert command(agent, "resume", one).status == 0
    eventually(lambda: _by_upstream(agent)["broken"][1] == "backoff", what="it fails again")
    glance = command(agent, "status")
    assert glance.status == 1
    assert glance.out.startswith("DEGRADED: 127.0.0.1:1 (upstream): unreachable for ")
    assert "1 of 2 links down" in glance.out
    assert json.loads(command(agent, "status", "--format", "json").out)["level"] == "degraded"

    assert command(agent, "links", "--status", "backoff", "-o", "wide").out.count("\n") == 3
    by_upstream = yaml.safe_load(command(agent, "links", "--upstream", "origin", "-o", "yaml").out)
    assert [link["id"] for link in by_upstream] == [found["origin"][0]]
    completed = federation_agent(
        _FEDERATION_AGENT_COMPLETE="complete_bash",
        COMP_WORDS=f"federation-agent describe {one[:4]}",
        COMP_CWORD="2",
        FEDERATION_AGENT_URL=url(agent),
        FEDERATION_AGENT_TOKEN=TOKEN,
    )
    assert completed.out.split() == [one]
    assert agent.terminate() == 0
    away = command(agent, "status")
    assert (away.status, away.out.split(":")[0]) == (2, "DOWN")


def test_an_agent_that_cannot_read_its_broker_says_so(agent_of: AgentOf, broker: Node, here: Site) -> None:
    agent = agent_of(broker, management_uri="http://127.0.0.1:1")
    agent.write({here.vhost: {}}).start()

    def links() -> Done:
        return command(agent, "links")

    eventually(lambda: links().status == 1, what="links exits with 1")
    assert "it can't read its broker" in links().err
    assert command(agent, "status").status == 2


def _by_upstream(agent: Agent) -> dict[str, tuple[str, str]]:
    """Id and status."""
    found = json.loads(command(agent, "links", "--format", "json").out or "[]")
    return {link["upstream"]: (link["id"], link["status"]) for link in found}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("links", "--url", "http://127.0.0.1:1"), 4, "connection refused: check the address and that the agent runs"),
        (("links", "--url", "http://guest:s3ntinel@h"), 4, "put a token into --token-file"),
        (("links", "--url", "http://[s3ntinel"), 4, "write http://HOST:PORT"),
        (("links", "--url", "ftp://h"), 4, "write http://HOST:PORT"),
        (("pause",), 2, "give either links, --vhost or --all"),
        (("pause", GONE, "--all"), 2, "give either links, --vhost or --all"),
        (("pause", GONE, "--vhost", "/"), 2, "give either links, --vhost or --all"),
        (("links", "--token-file", "/nowhere"), 3, "No such file"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], status: int, said: str) -> None:
    done = federation_agent(*arguments)
    assert (done.status, len(done.errors)) == (status, 1)
    assert said in done.err
    assert "s3ntinel" not in done.err


def test_a_variable_that_holds_no_token_is_said() -> None:
    done = federation_agent("links", FEDERATION_AGENT_TOKEN="s3ntinel\nx")
    assert (done.status, done.errors) == (
        3,
        ["FEDERATION_AGENT_TOKEN holds no token: it must be one line of printable ASCII"],
    )


def test_what_answers_is_no_agent(broker: Node) -> None:
    for port in (broker.management_port, broker.amqp_port):
        done = federation_agent("links", "--url", f"http://127.0.0.1:{port}")
        assert (done.status, len(done.errors)) == (4, 1)
        assert "not an agent's" in done.err
