"""Definitions that change while the shovel runs, that operators hold up, and that are refused."""

from __future__ import annotations

import time

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


def test_a_definition_that_changes_under_load(agent_of: AgentOf, here: Site, there: Site) -> None:
    """What was taken is settled first: nothing is lost and nothing comes twice, in whichever queue it is."""
    modes = ("on-confirm", "no-ack")
    defined = {mode: shovel(there, here, ack_mode=mode, src_queue=mode, dest_queue=mode) for mode in modes}
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_running(len(modes))
    bodies, later = numbered(2_000), numbered(100, start=2_000)
    for mode in modes:
        here.queue(name=f"{mode} 2")
        there.publish(bodies, mode, exchange="")
    agent.write({here.vhost: {"shovels": {mode: defined[mode] | {"dest-queue": f"{mode} 2"} for mode in modes}}})
    changed = {f"{mode} 2" for mode in modes}
    eventually(lambda: {each["dest_queue"] for each in ask(agent, "/api/shovels")} == changed, what="it is in force")
    for mode in modes:
        there.publish(later, mode, exchange="")
        queues = (mode, f"{mode} 2")
        eventually(lambda queues=queues: sum(depth(here.uri, each) for each in queues) >= 2_100, what="all have come")  # type: ignore[misc]
        found = [here.take(depth(here.uri, each), queue=each) for each in queues]
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


def test_a_user_without_permissions_in_the_vhost(agent_of: AgentOf, here: Site, there: Site) -> None:
    """At either end: the others go on, and so does this one once the permission is there and it is restarted."""
    definition = shovel(there, here)
    defined = {"other": definition}
    for end, site, key in (("source", there, "src-uri"), ("destination", here, "dest-uri")):
        site.node.admin.user("bare", "pw", "")
        defined[end] = definition | {key: site.node.uri(site.vhost, "bare", "pw")}
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_for("running", named(here, "other"))
    for end, site in (("source", there), ("destination", here)):
        agent.wait_for("invalid", named(here, end))
        wait_error(agent, here, f"shovel {end}", "bare", name=end)
        site.node.admin.permissions(site.vhost, "bare")
    time.sleep(REST)
    for end in ("source", "destination"):
        ask(agent, f"/api/shovels/vhost/{here.vhost}/{end}/restart", "DELETE")
        agent.wait_for("running", named(here, end))
