"""A pause outlives the agent that it was asked of, and says who asked, when and why."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

import pytest

from agent.core.replicas.slots import lease_exchange, slot_of
from tests.acceptance.command import Done, federation_agent
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.status.asking import get, link_when, remembered, url
from tests.lab import user_program

REASON = "the disk is replaced"
LONG_AGO = {"by": "ann@ops", "at": 1_790_000_000, "reason": REASON}


def command(agent: Agent, *arguments: str) -> Done:
    return federation_agent(*arguments, "--url", url(agent))


def remember(agent: Agent, link_id: str, *paused: str) -> None:
    """Writes into the link's lease, as a later agent of the group would have."""
    exchange = lease_exchange(agent.lab.group)
    token = {"format": 1, "number": time.time_ns() // 10**7, "paused": dict.fromkeys(paused, LONG_AGO), "tried": {}}
    user_program.publish(agent.downstream.uri(), exchange, str(slot_of(link_id)), [json.dumps(token)])


def test_a_pause_survives_a_restart_with_its_reason(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    there.wait_bound("k")
    link_id = link_when(agent, "running", lambda link: link["status"] == "running")["id"]
    with remembered(agent, link_id, "paused"):
        assert command(agent, "pause", link_id, "--reason", REASON).status == 0
    again = command(agent, "pause", "--all")
    assert f"{link_id} pause: it was paused by " in again.out and f": {REASON}, and stays so" in again.out
    agent.kill()
    agent.start()
    paused = link_when(agent, "paused", lambda link: link["status"] == "paused")
    assert (here.vhost, X, "origin") not in [key for key, each in agent.links().items() if each["status"] == "running"]
    assert "@" in paused["paused"]["by"]
    assert paused["paused"]["reason"] == REASON
    assert paused["paused"]["at"]
    assert paused["error"].startswith(f"paused by {paused['paused']['by']} since ")
    for arguments in (("links",), ("describe", link_id)):
        assert REASON in " ".join(command(agent, *arguments).out.split())
    there.publish(["m"])
    link_when(agent, "paused with its backlog", lambda link: (link["status"], link["backlog"]) == ("paused", 1))
    assert here.take(1, deadline=0.1) == []
    with remembered(agent, link_id, "paused", is_so=False):
        assert command(agent, "resume", link_id).status == 0
        assert here.take(1) == ["m"]
    agent.kill()
    agent.start()
    link_when(agent, "running", lambda link: link["status"] == "running")


def test_what_is_remembered_counts_and_a_pause_of_a_day_is_trouble(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    link_id = link_when(agent, "running", lambda link: link["status"] == "running")["id"]
    remember(agent, link_id, link_id)
    paused = link_when(agent, "paused", lambda link: link["status"] == "paused")
    assert paused["error"] == f"paused by ann@ops since 2026-09-21 14:13 UTC: {REASON}"
    [cause] = get(agent, "/api/causes")["causes"]
    assert (cause["trouble"], cause["error"]) == ("paused for long", paused["error"])
    assert command(agent, "status").status == 1
    remember(agent, link_id)
    link_when(agent, "running", lambda link: link["status"] == "running")


def test_a_body_that_is_no_object_is_refused(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange()
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    link_id = link_when(agent, "running", lambda link: link["status"] == "running")["id"]
    for body in (b"[]", b"{", b'{"reason": 7}'):
        request = urllib.request.Request(f"{url(agent)}/api/links/{link_id}/pause", data=body, method="POST")
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            urllib.request.urlopen(request, timeout=30)
        assert "JSON object" in json.loads(refused.value.read())["error"]
    assert get(agent, f"/api/links/{link_id}", "GET")["status"] == "running"
    assert get(agent, f"/api/links/{link_id}/pause", "POST")["paused"]["by"] == "HTTP from 127.0.0.1"
