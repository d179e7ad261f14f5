"""Shovels to and from a broker of AMQP 1.0 that isn't RabbitMQ."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from agent.check.configuration import check
from agent.check.findings import FindingLevel, Topic
from agent.definitions.sources.load import load_configuration
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ProxyTo, ask, named, running, shovels, wait_error
from tests.lab.amqp10_client import BROKER, PYTHON
from tests.lab.lab import Lab
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import eventually

COUNT: Final = 500
PREFETCH: Final = 100


@dataclass
class Other:
    port: int
    process: subprocess.Popen[str]

    def end(self, which: str, address: str, *, port: int | None = None) -> dict[str, Any]:
        """The keys of one end of a shovel, which logs in as nobody."""
        uri = f"amqp://127.0.0.1:{port or self.port}"
        return {f"{which}-protocol": "amqp10", f"{which}-uri": uri, f"{which}-address": address}

    def links(self) -> list[list[str]]:
        """Of each link that was there: what it is, its name, and its address. The broker ends by that."""
        self.process.terminate()
        return [line.rsplit(" ", 1) for line in self.process.communicate()[0].splitlines()]


@pytest.fixture
def other(lab: Lab) -> Iterator[Other]:
    port = lab.ports.take()
    program = [PYTHON, str(BROKER), str(port)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=os.environ | lab.mark)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    yield Other(port, process)
    process.kill()
    process.wait()
    process.stdout.close()


def through(here: Site, other: Other, *, port: int | None = None, **keys: Any) -> dict[str, Any]:
    """To the other broker, to another address there, and back."""
    there = {"src-uri": here.uri, "src-queue": "src"} | other.end("dest", "first", port=port)
    across = other.end("src", "first", port=port) | other.end("dest", "picky", port=port)
    back = other.end("src", "picky", port=port) | {"dest-uri": here.uri, "dest-queue": "dest"}
    each = {"src-prefetch-count": PREFETCH, "reconnect-delay": 0.2} | keys
    return {"there": there | each, "across": across | each, "back": back | each | {"src-consumer-name": "mine"}}


def test_messages_pass_in_every_direction(agent_of: AgentOf, here: Site, other: Other) -> None:
    """Each is refused once on its way, a large one among them, and arrives as it was."""
    here.queue(name="src").queue(name="dest")
    agent = agent_of(here.node).write({here.vhost: {"shovels": through(here, other)}}).start()
    agent.wait_for("running", *(named(here, name) for name in ("there", "across", "back")))
    bodies = [*numbered(COUNT), "x" * 300_000]
    here.publish(bodies, "src", exchange="", headers={"mine": "yes"})
    came = messages(here.uri, "dest", len(bodies))
    assert sorted(each.body.decode() for each in came) == sorted(bodies)
    assert all(each.headers["mine"] == "yes" for each in came)
    eventually(lambda: all(link["in_flight"] == 0 for link in ask(agent, "/api/links")), what="all are settled")
    assert agent.terminate() == 0
    assert ["consumer mine", "picky"] in other.links()


@pytest.mark.thorough
def test_connections_are_lost_and_no_message(agent_of: AgentOf, here: Site, other: Other, proxy_to: ProxyTo) -> None:
    here.queue(name="src").queue(name="dest")
    proxy = proxy_to(other.port)
    agent = agent_of(here.node).write({here.vhost: {"shovels": through(here, other, port=proxy.port)}}).start()
    agent.wait_for("running", *(named(here, name) for name in ("there", "across", "back")))
    for part in range(5):
        here.publish(numbered(COUNT, start=part * COUNT), "src", exchange="")
        before = moved(agent)
        eventually(lambda before=before: moved(agent) > before, what="they are on their way")  # type: ignore[misc]
        proxy.cut()
    wanted = set(numbered(5 * COUNT))
    came: set[str] = set()

    def all_came() -> bool:
        came.update(here.take(depth(here.uri, "dest"), queue="dest"))
        return came >= wanted

    eventually(all_came, what="all came")
    assert came == wanted


def moved(agent: Agent) -> int:
    return sum(int(link["forwarded"]) for link in ask(agent, "/api/links"))


@pytest.mark.thorough
def test_so_many_messages(agent_of: AgentOf, here: Site, other: Other) -> None:
    """What was taken beyond goes back."""
    here.queue(name="src").queue(name="dest").publish(numbered(300), "src", exchange="")
    there = through(here, other)["there"]
    fetch = other.end("src", "first") | {"dest-uri": here.uri, "dest-queue": "dest"}
    first = fetch | {"src-delete-after": 100}
    agent = agent_of(here.node).write({here.vhost: {"shovels": {"there": there, "first": first}}}).start()
    agent.wait_for("terminated", named(here, "first"))
    assert here.take(100, queue="dest") == numbered(100)
    agent.write({here.vhost: {"shovels": {"there": there, "rest": fetch}}})
    assert here.take(200, queue="dest") == numbered(200, start=100)


async def test_an_address_that_gives_no_credit(agent_of: AgentOf, here: Site, other: Other, tmp_path: Path) -> None:
    """The shovel is blocked once messages wait, and `check` says it before."""
    here.queue(name="src")
    definition = {"src-uri": here.uri, "src-queue": "src"} | other.end("dest", "closed")
    path = tmp_path / "agent.yaml"
    path.write_text(json.dumps({"downstream": {"uri": here.uri}, "vhosts": {here.vhost: shovels(definition)}}))
    configuration = load_configuration(str(path), environment={})
    found = [each for each in (await check(configuration, apis={})).findings if each.topic is Topic.ALARM]
    assert ["'closed' gives no credit" in each.message for each in found if each.level is FindingLevel.WARNING] == [
        True
    ]
    agent = running(agent_of(here.node), here, definition)
    here.publish(numbered(10), "src", exchange="")
    wait_error(agent, here, "shovel destination blocked: the broker gives no credit")
    assert agent.terminate() == 0
    assert depth(here.uri, "src") == 10
