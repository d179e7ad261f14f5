"""Definitions that change while the shovel runs, that operators hold up, and that are refused."""

from __future__ import annotations

import time

import pytest

from agent.amqp.connection_pool import REST
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, running, shovel, shovels, wait_error
from tests.lab.user_program import depth, numbered, times
from tests.lab.waiting import eventually


def test_pause_resume_and_restart(agent_of: AgentOf, here: Site, there: Site) -> None:
    """While it is paused messages wait at the source; each comes once."""
    agent = running(agent_of(here.node), here, shovel(there, here))
    [link] = ask(agent, "/api/links")
    there.publish(numbered(100), "src", exchange="")
    assert here.take(100, queue="dest") == numbered(100)
    # A pause waits seconds for confirms; what a starved broker confirms later comes again.
    eventually(lambda: ask(agent, "/api/links")[0]["in_flight"] == 0, what="all are confirmed")
    ask(agent, f"/api/links/{link['id']}/pause", "POST")
    agent.wait_for("paused", named(here))
    there.wait_unconsumed()
    there.publish(waiting := numbered(100, start=100), "src", exchange="")
    assert [each["state"] for each in ask(agent, "/api/shovels")] == ["terminated"]
    eventually(lambda: depth(there.uri, "src") >= 100, what="all wait at the source")
    assert depth(there.uri, "src") == 100
    assert depth(here.uri, "dest") == 0
    ask(agent, f"/api/links/{link['id']}/resume", "POST")
    assert here.take(100, queue="dest") == waiting
    ask(agent, f"/api/links/{link['id']}/restart", "POST")
    ask(agent, f"/api/shovels/vhost/{here.vhost}/drain/restart", "DELETE")
    there.publish(later := numbered(500, start=200), "src", exchange="")
    assert times(here.take(500, queue="dest")) == dict.fromkeys(later, 1)
    agent.wait_for("running", named(here))


@pytest.mark.parametrize("mode", ["on-confirm", "no-ack"])
def test_a_definition_that_changes_under_load(agent_of: AgentOf, here: Site, there: Site, mode: str) -> None:
    """What was taken is settled first: nothing is lost and nothing comes twice, in whichever queue it is."""
    definition = shovel(there, here, ack_mode=mode)
    agent = running(agent_of(here.node), here, definition)
    here.queue(name="dest2")
    there.publish(bodies := numbered(3_000), "src", exchange="")
    agent.write({here.vhost: shovels(definition | {"dest-queue": "dest2"})})
    eventually(lambda: ask(agent, "/api/shovels")[0]["dest_queue"] == "dest2", what="the change is in force")
    there.publish(later := numbered(100, start=3_000), "src", exchange="")
    eventually(lambda: depth(here.uri, "dest") + depth(here.uri, "dest2") >= 3_100, what="all have come")
    found = here.take(depth(here.uri, "dest"), queue="dest"), here.take(depth(here.uri, "dest2"), queue="dest2")
    assert times([*found[0], *found[1]]) == dict.fromkeys(bodies + later, 1)
    assert found[1][-100:] == later


def test_a_definition_that_is_refused_leaves_the_shovel_as_it_is(agent_of: AgentOf, here: Site, there: Site) -> None:
    definition = shovel(there, here)
    agent = running(agent_of(here.node), here, definition)
    agent.write({here.vhost: shovels(definition | {"src-exchange": "x", "ack-mode": "sometimes"})})

    def problems() -> str:
        return " ".join(ask(agent, "/api/overview")["problems"])

    eventually(lambda: "src-queue or src-exchange" in problems() and "ack-mode" in problems(), what="both are shown")
    there.publish(numbered(10), "src", exchange="")
    assert here.take(10, queue="dest") == numbered(10)
    assert agent.history(here.vhost, "drain", "").count("running") == 1


@pytest.mark.parametrize("end", ["source", "destination"])
def test_a_user_without_permissions_in_the_vhost(agent_of: AgentOf, here: Site, there: Site, end: str) -> None:
    """The others go on, and so does this one once the permission is there and it is restarted."""
    site, key = (there, "src-uri") if end == "source" else (here, "dest-uri")
    site.node.admin.user("bare", "pw", "")
    definition = shovel(there, here) | {key: site.node.uri(site.vhost, "bare", "pw")}
    agent = agent_of(here.node)
    agent.write(
        {here.vhost: {"shovels": {"drain": definition, "other": shovel(there, here, src_queue="src2")}}}
    ).start()
    agent.wait_for("running", named(here, "other"))
    agent.wait_for("invalid", named(here))
    wait_error(agent, here, f"shovel {end}", "bare")
    site.node.admin.permissions(site.vhost, "bare")
    time.sleep(REST)
    ask(agent, f"/api/shovels/vhost/{here.vhost}/drain/restart", "DELETE")
    agent.wait_for("running", named(here))
