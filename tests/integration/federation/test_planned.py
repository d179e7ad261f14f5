"""What `plan` announces is what `run` then does, by the word of the upstream broker itself."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command import federation_agent
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_api import wait_noticing
from tests.integration.federation.test_failures import link
from tests.integration.federation.test_rebuilding import PURPOSE, queue_of
from tests.lab import user_program
from tests.lab.admin import AdminError
from tests.lab.waiting import eventually
from tests.tiers import thorough

Happened = Counter[tuple[str, str]]
"""Kinds of events, and the names of exchanges and queues or the keys of bindings."""
EVENTS = {"create": "created", "delete": "deleted", "bind": "created", "unbind": "deleted"}


@dataclass
class Listener:
    """Counts what is created and deleted in one vhost, as the broker's event exchange reports it."""

    site: Site
    queue: str
    found: list[dict[str, Any]] = field(default_factory=list)

    def happened(self) -> Happened:
        uri = self.site.node.uri("/")
        waiting = user_program.depth(uri, self.queue)
        for message in user_program.messages(uri, self.queue, waiting) if waiting else []:
            self.found.append({"event": message.routing_key, **message.headers})
        here = [event for event in self.found if event["vhost"] == self.site.vhost]
        deleted = {event["name"] for event in here if event["event"] == "exchange.deleted"}
        return Counter(told for event in here if (told := _told(event, deleted)) is not None)

    def forget(self) -> None:
        self.happened()
        self.found.clear()


def _told(event: dict[str, Any], deleted: set[str]) -> tuple[str, str] | None:
    """None for bindings that the plan doesn't list: those of the queue and the canary, and of what is deleted."""
    if not event["event"].startswith("binding."):
        return event["event"], event["name"]
    goes_with_it = event["event"] == "binding.deleted" and event["destination_name"] in deleted
    return None if event["source_name"] != X or goes_with_it else (event["event"], event["routing_key"])


@contextmanager
def listening(site: Site, queue: str) -> Iterator[Listener]:
    admin = site.node.admin
    admin.queue("/", queue)
    try:
        for key in ("exchange.*", "queue.*", "binding.*"):
            admin.bind("/", "amq.rabbitmq.event", queue, key)
        yield Listener(site, queue)
    finally:
        admin.delete("queues", "/", queue)


@pytest.fixture
def listener(there: Site, name: Callable[[str], str]) -> Iterator[Listener]:
    with listening(there, name("events")) as found:
        yield found


def plan(agent: Agent, path: Path) -> dict[str, Any]:
    done = federation_agent("plan", "-c", str(path), "--format", "json", cwd=agent.directory)
    assert done.status == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def planned(agent: Agent, path: Path) -> Happened:
    """What `plan` says would be created and deleted upstream."""
    [found] = plan(agent, path)["links"]
    assert found["outlook"] == "run", found["reason"]
    return Counter(
        (f"{each['kind']}.{EVENTS[each['verb']]}", each["name"])
        for each in found["actions"]
        if each["verb"] in EVENTS and "bound already" not in each["why"]
    )


def wait_for(listener: Listener, expected: Happened) -> None:
    eventually(lambda: listener.happened() == expected, what=f"{expected}")
    listener.forget()


def _loses_connection(agent: Agent, here: Site, there: Site) -> bool:
    """Cuts those that are listed: perhaps others that are gone, and not yet the link's."""
    for connection in there.node.admin.get("connections"):
        if connection["vhost"] == there.vhost:
            with suppress(AdminError):
                there.node.admin.delete("connections", connection["name"])
    return len(agent.history(*link(here))) > 1


def test_of_a_link_from_its_beginning_to_its_end(
    agent_of: AgentOf, here: Site, there: Site, listener: Listener
) -> None:
    here.exchange().queue("k", "l")
    agent = agent_of(here.node).write({here.vhost: federated(there)})
    new = planned(agent, agent.path)
    assert new["exchange.created", X] == new["binding.created", "k"] == 1
    listener.forget()
    agent.start().wait_for("running", link(here))
    wait_for(listener, new)

    assert planned(agent, agent.path) == Counter(), "nothing is left to do"
    text = federation_agent("plan", "-c", str(agent.path), cwd=agent.directory).out
    assert text.endswith("; no changes\n")
    eventually(lambda: _loses_connection(agent, here, there), what="its connections are listed, some seconds late")
    # Where they go one after another, it runs again more than once.
    eventually(lambda: agent.history(*link(here)).count("running") > 1, what="the link runs again")
    assert listener.happened() == Counter()

    path = agent.directory / "changed.yaml"
    path.write_text(agent.write({here.vhost: federated(there, **{"max-hops": 2})}).path.read_text())
    agent.write({here.vhost: federated(there)})
    changed = planned(agent, path)
    assert changed
    runs = agent.history(*link(here)).count("running")
    agent.write({here.vhost: federated(there, **{"max-hops": 2})})
    eventually(lambda: agent.history(*link(here)).count("running") > runs, what="the link runs again")
    wait_for(listener, changed)
    assert planned(agent, agent.path) == Counter()


@pytest.mark.parametrize("is_interrupted", [False, thorough(True)])
@pytest.mark.thorough
def test_of_a_link_of_an_agent_that_was_restarted(
    agent_of: AgentOf, here: Site, there: Site, listener: Listener, *, is_interrupted: bool
) -> None:
    here.exchange().queue("k", "l")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    canary, queue, admin = there.wait_canary(), queue_of(there), there.node.admin
    wait_noticing(agent)
    agent.kill()
    if is_interrupted:
        flags = {"internal": True, "auto_delete": True}
        admin.exchange(there.vhost, f"{queue} B", "fanout", arguments=PURPOSE, **flags)
        admin.bind(there.vhost, f"{queue} B", queue)
    here.unbind("k")
    eventually(lambda: not admin.get("queues", there.vhost, queue).get("consumers", 1), what="nobody consumes")
    found = planned(agent, agent.path)
    assert ("exchange.created", canary) not in found
    listener.forget()
    agent.start().wait_for("running", link(here))
    wait_for(listener, found)
    assert planned(agent, agent.path) == Counter()


def paused(agent: Agent, here: Site, there: Site) -> str:
    """One link that ran and is paused now; the agent's address."""
    here.exchange().queue("k", "l")
    agent.write({here.vhost: federated(there)}).start().wait_for("running", link(here))
    wait_noticing(agent)
    url = f"http://127.0.0.1:{agent.port}"
    assert federation_agent("pause", "--all", "--url", url).status == 0
    agent.wait_for("paused", link(here))
    return url


@pytest.mark.thorough
def test_of_a_link_whose_exchange_was_created_again_while_it_was_paused(
    agent_of: AgentOf, here: Site, there: Site, listener: Listener
) -> None:
    agent = agent_of(here.node)
    url = paused(agent, here, there)
    there.delete_exchange()
    there.exchange()
    here.unbind("k")
    found = planned(agent, agent.path)
    assert found["binding.created", "l"] == 1
    listener.forget()
    assert federation_agent("resume", "--all", "--url", url).status == 0
    wait_for(listener, found)
    there.wait_bound("l")
    assert planned(agent, agent.path) == Counter()


@pytest.mark.thorough
def test_of_a_link_whose_canary_was_deleted_while_it_was_paused(
    agent_of: AgentOf, here: Site, there: Site, listener: Listener
) -> None:
    agent = agent_of(here.node)
    url = paused(agent, here, there)
    there.node.admin.delete("exchanges", there.vhost, there.wait_canary())
    here.unbind("k")
    found = planned(agent, agent.path)
    told = federation_agent("plan", "-c", str(agent.path), "--exit-code", cwd=agent.directory)
    assert (told.status, told.out.splitlines()[-1]) == (0, "links: 1 paused; no changes")
    assert "): paused; once it is resumed:" in told.out
    listener.forget()
    assert federation_agent("resume", "--all", "--url", url).status == 0
    agent.wait_for("running", link(here))
    there.wait_bound("l")
    wait_for(listener, found)


def test_of_a_renamed_upstream_and_of_one_that_is_gone(
    agent_of: AgentOf, here: Site, there: Site, listener: Listener
) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.wait_canary()
    former = [each["id"] for each in plan(agent, agent.path)["links"]]
    definition = agent.path.read_text()
    gone, renamed = agent.directory / "gone.yaml", agent.directory / "renamed.yaml"
    gone.write_text(agent.write().path.read_text())
    renamed.write_text(definition.replace("origin:", "renamed:"))
    agent.write_text(definition)

    assert plan(agent, agent.path)["ended"] == []
    assert plan(agent, gone)["ended"] == former
    told = federation_agent("plan", "-c", str(gone), "--exit-code")
    assert (told.status, told.out.splitlines()[-1]) == (4, "links: none; 1 link to end")
    source = f"exchange {X!r} in vhost {here.vhost!r} from upstream 'origin'"
    assert re.search(f"link {former[0]}: {source}: ends: .* wait in its queue.*; it is no longer defined", told.out)
    assert plan(agent, renamed)["ended"] == former
    found = planned(agent, renamed)
    listener.forget()
    agent.write_text(renamed.read_text()).wait_for("running", link(here, "renamed"))
    wait_for(listener, found)


def test_a_link_of_a_vhost_that_does_not_exist_is_invalid_as_it_is_when_it_runs(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    vhosts = {f"{here.vhost} elsewhere": {**federated(there), "exchanges": {X: {"type": "topic"}}}}
    agent = agent_of(here.node).write(vhosts)
    [found] = plan(agent, agent.path)["links"]
    assert (found["outlook"], found["actions"]) == ("invalid", [])
    assert "does not exist on the downstream" in found["reason"]
