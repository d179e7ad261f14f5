"""A secret stands in every place that takes one, things go well and wrong around it, and nothing tells it."""

from __future__ import annotations

import base64
import json
import signal
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.status.http.openapi import PATHS
from tests.acceptance.command import federation_agent
from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, policies
from tests.integration.status.asking import events, get, url
from tests.lab.node import Node
from tests.lab.waiting import eventually

SECRET = "s3ntinel-pa55"
USER = "sentinel"
FORMS = (SECRET, *(base64.b64encode(f"{user}:{SECRET}".encode()).decode().rstrip("=") for user in (USER, "guest")))


@pytest.fixture
def broker(borrowed: Borrowed) -> Node:
    """Its global parameter defines an upstream, which no other test's agent may see."""
    return borrowed()


@pytest.fixture
def secretive(broker: Node, second_broker: Node, here: Site, there: Site) -> Iterator[None]:
    """A user on either broker whose password is the secret, and definitions on one that hold it."""
    for node, vhost in ((broker, here.vhost), (second_broker, there.vhost)):
        node.admin.user(USER, SECRET, tags="administrator")
        for each in (vhost, "/"):
            node.admin.permissions(each, USER)
    told = {"vhosts": {here.vhost: {"upstreams": {"global": {"uri": there.node.uri(there.vhost, "guest", SECRET)}}}}}
    broker.admin.global_parameter("federation-agent", told)
    yield
    broker.admin.delete("global-parameters", "federation-agent")
    for node in (broker, second_broker):
        node.admin.delete("users", USER)


def configuration(agent: Agent, here: Site, there: Site) -> dict[str, Any]:
    broker, far = here.node, there.node
    tls = f"password={SECRET}&certfile=missing.pem&keyfile=missing.pem"
    return {
        "agent": {
            "http": {"listen": f"127.0.0.1:{agent.port}", "token": SECRET},
            "status-export": {"directory": "export", "sample-interval": 1},
        },
        "downstream": {
            "uri": broker.uri(user=USER, password=SECRET),
            "management": broker.management_uri(user=USER, password=SECRET),
        },
        "definitions": {"management": True, "files": ["definitions.json"]},
        "vhosts": {
            here.vhost: {
                "upstreams": {
                    "good": {"uri": far.uri(there.vhost, USER, SECRET)},
                    "refused": {"uri": [far.uri(there.vhost, "guest", SECRET), f"amqp://x:{SECRET}@127.0.0.1:1/a"]},
                    "tls": {"uri": f"amqps://guest:{SECRET}@127.0.0.1:{far.amqp_port}/%2F?{tls}"},
                    "no-tls": {"uri": f"amqps://guest:{SECRET}@127.0.0.1:{far.amqp_port}"},
                    "no-amqp": {"uri": f"amqp://guest:{SECRET}@127.0.0.1:{far.management_port}"},
                    "no-vhost": {"uri": far.uri("nowhere", USER, SECRET)},
                    "parts": {"host": "127.0.0.1", "port": 1, "username": "guest", "password": SECRET},
                },
                "policies": policies(),
            }
        },
    }


def exported(here: Site) -> dict[str, Any]:
    """As a broker exports its definitions; the hash isn't one, and has to stay as unseen as one."""
    value = {"uri": f"amqp://guest:{SECRET}@127.0.0.1:1"}
    return {
        "vhosts": [{"name": here.vhost}],
        "users": [{"name": "u", "password_hash": SECRET, "tags": ""}],
        "parameters": [{"component": "federation-upstream", "vhost": here.vhost, "name": "exported", "value": value}],
    }


def test_no_word_of_it(agent_of: AgentOf, broker: Node, here: Site, there: Site, secretive: None) -> None:
    agent = agent_of(broker)
    here.exchange().queue("k")
    document = configuration(agent, here, there)
    (agent.directory / "definitions.json").write_text(json.dumps(exported(here)))
    agent.write_text(yaml.safe_dump(document)).start()

    def settled() -> bool:
        found = {link["upstream"]: link["status"] for link in get(agent, "/api/links")}
        return len(found) == 9 and found["good"] == "running" and "starting" not in found.values()

    eventually(settled, what="nine links are what they can be", ignoring=OSError)
    there.publish(["m"])
    assert here.take(1) == ["m"]
    told = [*answers(agent), *streamed(agent), *commands(agent)]
    agent.write_text(yaml.safe_dump(document).replace("token:", "tokn:"))
    agent.signal(signal.SIGHUP)
    eventually(lambda: get(agent, "/api/overview")["problems"], what="the mistake is shown")
    told += answers(agent)
    second = agent_of(broker)
    (second.directory / "definitions.json").write_text(json.dumps(exported(here)))
    second.write_text(yaml.safe_dump(document)).start()
    assert second.wait() == 3
    assert agent.terminate() == 0
    kept = [path.read_text() for path in written(agent.directory / "export")]
    assert kept
    assert "login refused for user" in "".join(told)
    for text in (*told, *kept, agent.log.read_text(), second.log.read_text()):
        for form in FORMS:
            assert form not in text, text[max(0, text.find(form) - 500) :][:600]


def answers(agent: Agent) -> Iterator[str]:
    """Whatever can be asked, with the token and with a wrong one, and what only looks like a question."""
    link_id = get(agent, "/api/links")[0]["id"]
    for path, found in PATHS.items():
        if path == "/api/events":
            continue
        for method in found:
            for token in (SECRET, "wrong"):
                yield asked(agent, path.format(id=link_id, vhost="%2F", node="n", name="s"), method.upper(), token)
    yield asked(agent, f"/api/links?access_token={SECRET[::-1]}", "BREW", "wrong")


def asked(agent: Agent, path: str, method: str, token: str) -> str:
    request = urllib.request.Request(url(agent) + path, method=method, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.headers}{error.read().decode()}"


def streamed(agent: Agent) -> Iterator[str]:
    with events(agent) as told:
        yield json.dumps(next(told))
        assert asked(agent, f"/api/links/{get(agent, '/api/links')[0]['id']}/restart", "POST", SECRET)
        yield json.dumps(next(told))


def commands(agent: Agent) -> Iterator[str]:
    at = ("--url", url(agent))
    for arguments in (
        ("plan", "-c", str(agent.path)),
        ("plan", "-c", str(agent.path), "--format", "json"),
        ("validate", "-c", str(agent.path)),
        ("links", *at),
        ("links", "--format", "json", *at),
        ("restart", "ffffffff", *at),
    ):
        done = federation_agent(*arguments, FEDERATION_AGENT_TOKEN=SECRET)
        yield done.out + done.err
    yield from bundled(agent, *at)


def bundled(agent: Agent, *at: str) -> Iterator[str]:
    archive = agent.directory / "fault.tar.gz"
    arguments = ("bundle", *at, "-o", str(archive), "-c", str(agent.path))
    done = federation_agent(*arguments, FEDERATION_AGENT_TOKEN=SECRET)
    assert (done.status, done.out, done.err) == (0, f"{archive}\n", "")
    with tarfile.open(archive) as opened:
        found = {member.name: opened.extractfile(member) for member in opened.getmembers()}
        texts = {name.partition("/")[2]: file.read().decode() for name, file in found.items() if file is not None}
    assert {"configuration.yml", "links.json", "causes.json", "metrics.txt"} < texts.keys()
    assert len(json.loads(texts["links.json"])) == 9
    assert "no-vhost:" in texts["configuration.yml"]
    yield from texts.values()
    assert federation_agent(*arguments, FEDERATION_AGENT_TOKEN=SECRET).status == 3, "it replaces no file"


def written(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]
