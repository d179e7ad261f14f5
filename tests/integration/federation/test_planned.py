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
    def happened() -> bool:
        assert listener.happened() == expected
        return True

    eventually(happened, what="what was planned has happened", ignoring=AssertionError)
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
    """New, running, after a lost connection, changed, gone, and renamed."""
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

    changed = _planned_file(agent, here, federated(there, **{"max-hops": 2}))
    found = planned(agent, changed)
    assert found
    runs = agent.history(*link(here)).count("running")
    agent.write_text(changed.read_text()).reload()
    eventually(lambda: agent.history(*link(here)).count("running") > runs, what="the link runs again")
    wait_for(listener, found)
    assert planned(agent, agent.path) == Counter()
    _check_ends(agent, here, there, listener)


def _check_ends(agent: Agent, here: Site, there: Site, listener: Listener) -> None:
    """What is planned where the link isn't defined any more, and where its upstream has another name."""
    there.wait_canary()
    now = plan(agent, agent.path)
    former = [each["id"] for each in now["links"]]
    assert now["ended"] == []
    gone = _planned_file(agent, here, {})
    told = federation_agent("plan", "-c", str(gone), "--exit-code")
    assert (told.status, told.out.splitlines()[-1]) == (4, "links: none; 1 link to end")
    source = f"exchange {X!r} in vhost {here.vhost!r} from upstream 'origin'"
    assert re.search(f"link {former[0]}: {source}: ends: .* wait in its queue.*; it is no longer defined", told.out)
    assert plan(agent, gone)["ended"] == former

    renamed = federated(there, **{"max-hops": 2})
    renamed["upstreams"] = {"renamed": renamed["upstreams"]["origin"]}
    path = _planned_file(agent, here, renamed)
    assert plan(agent, path)["ended"] == former
    found = planned(agent, path)
    listener.forget()
    agent.write_text(path.read_text()).reload().wait_for("running", link(here, "renamed"))
    wait_for(listener, found)


def _planned_file(agent: Agent, here: Site, section: dict[str, Any]) -> Path:
    """Another configuration beside that of the agent, which stays as it is."""
    kept, path = agent.path.read_text(), agent.directory / "planned.yaml"
    path.write_text(agent.write({here.vhost: section}).path.read_text())
    agent.write_text(kept)
    return path


def pause(agent: Agent, here: Site) -> str:
    """Pauses the one link; the agent's address."""
    wait_noticing(agent)
    url = f"http://127.0.0.1:{agent.port}"
    assert federation_agent("pause", "--all", "--url", url).status == 0
    agent.wait_for("paused", link(here))
    return url


@pytest.mark.thorough
def test_of_a_link_whose_agent_was_killed_or_that_was_paused_meanwhile(
    agent_of: AgentOf, here: Site, there: Site, listener: Listener
) -> None:
    """While the agent was away a binding went, and half of another exchange was built; while the link was paused, its
    exchange was created again, and its canary deleted."""
    here.exchange().queue("k", "l", "m", "n", "o")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    canary, queue, admin = there.wait_canary(), queue_of(there), there.node.admin
    wait_noticing(agent)
    for key, is_interrupted in (("k", True), ("l", False)):
        agent.kill()
        if is_interrupted:
            [serves] = [name for name in there.links_objects() if name != queue]
            other = f"{queue} {'AB'[serves.endswith('A')]}"
            admin.exchange(there.vhost, other, "fanout", arguments=PURPOSE, internal=True, auto_delete=True)
            admin.bind(there.vhost, other, queue)
        here.unbind(key)
        eventually(lambda: not admin.get("queues", there.vhost, queue).get("consumers", 1), what="nobody consumes")
        found = planned(agent, agent.path)
        assert ("exchange.created", canary) not in found
        listener.forget()
        runs = agent.history(*link(here)).count("running")
        agent.start()
        eventually(lambda runs=runs: agent.history(*link(here)).count("running") > runs, what="it runs")  # type: ignore[misc]
        wait_for(listener, found)
        assert planned(agent, agent.path) == Counter()

    url = pause(agent, here)
    there.delete_exchange()
    there.exchange()
    here.unbind("m")
    found = planned(agent, agent.path)
    assert found["binding.created", "n"] == 1
    listener.forget()
    assert federation_agent("resume", "--all", "--url", url).status == 0
    wait_for(listener, found)
    there.wait_bound("n", "o")
    assert planned(agent, agent.path) == Counter()

    agent.wait_for("running", link(here))
    pause(agent, here)
    admin.delete("exchanges", there.vhost, there.wait_canary())
    here.unbind("n")
    found = planned(agent, agent.path)
    told = federation_agent("plan", "-c", str(agent.path), "--exit-code", cwd=agent.directory)
    assert (told.status, told.out.splitlines()[-1]) == (0, "links: 1 paused; no changes")
    assert "): paused; once it is resumed:" in told.out
    listener.forget()
    assert federation_agent("resume", "--all", "--url", url).status == 0
    agent.wait_for("running", link(here))
    there.wait_bound("o")
    wait_for(listener, found)


def test_a_link_of_a_vhost_that_does_not_exist_is_invalid_as_it_is_when_it_runs(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    vhosts = {f"{here.vhost} elsewhere": {**federated(there), "exchanges": {X: {"type": "topic"}}}}
    agent = agent_of(here.node).write(vhosts)
    [found] = plan(agent, agent.path)["links"]
    assert (found["outlook"], found["actions"]) == ("invalid", [])
    assert "does not exist on the downstream" in found["reason"]
