"""The canary exchange of a link, which goes when the upstream exchange is deleted."""

from __future__ import annotations

import time

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import HURRIED, Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_api import ask, wait_noticing
from tests.integration.federation.test_failures import ProxyTo, link
from tests.integration.federation.test_rebuilding import wait_for_runs
from tests.lab.cluster import Cluster
from tests.lab.waiting import eventually, holds_within

KEYS = [f"k{number}" for number in range(30)]
BOUND_WITHIN = 10.0
BOUND_AGAIN = 30.0  # where nothing tells of the deletion


def test_a_re_created_exchange_is_bound_again_within_10_seconds(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    """Also one that was deleted while the agent was cut off. A lost connection alone changes nothing upstream."""
    here.exchange().queue(*KEYS)
    proxy = proxy_to(there.node)
    uri = there.node.uri(there.vhost, port=proxy.port)
    agent = agent_of(here.node).write({here.vhost: federated(there, uri=uri, **{"reconnect-delay": 0.2})}).start()
    agent.wait_for("running", link(here))
    wait_noticing(agent)

    def attempt() -> float:
        attempts.append(len(attempts) + 1)
        there.delete_exchange()
        begun = time.monotonic()
        there.exchange()
        there.wait_bound(*KEYS)
        took = time.monotonic() - begun
        agent.wait_logged("bindings restored", attempts[-1])
        time.sleep(0.5)  # a few are bound once more in the same round, which ends the link where the exchange is gone
        return took

    attempts: list[int] = []
    holds_within(BOUND_WITHIN, attempt)
    assert len(agent.logged("bindings restored")) == len(attempts)
    there.publish(["m"], KEYS[7])
    assert here.take(1) == ["m"]
    assert agent.history(*link(here)) == ["running"]
    [shown] = ask(agent, "/api/links")
    assert "was missing, and is bound again: what was published in between may be missing" in shown["error"]
    assert shown["status"] == "running"

    before = there.links_objects()
    for count in (2, 3):
        proxy.cut()
        wait_for_runs(agent, here, count)
    assert there.links_objects() == before  # not rebuilt as B
    assert len(there.canaries()) == 1

    wait_noticing(agent)
    proxy.refuse()
    proxy.cut()
    agent.wait_for("backoff", link(here))
    there.delete_exchange()
    there.exchange()
    proxy.accept()
    agent.wait_for("running", link(here))
    there.wait_bound(*KEYS)

    def attempt_undeclared() -> float:
        """Nobody declares it again."""
        wait_noticing(agent)
        there.delete_exchange()
        begun = time.monotonic()
        there.wait_bound(*KEYS)
        return time.monotonic() - begun

    for _ in range(2):
        holds_within(BOUND_WITHIN, attempt_undeclared)


def test_one_canary_a_link_which_outlives_the_agent_and_not_the_link(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    wait_noticing(agent)
    assert agent.terminate() == 0
    [canary] = there.canaries()
    assert X in canary["name"]
    assert (canary["type"], canary["internal"], canary["auto_delete"]) == ("fanout", True, True)
    [binding] = there.node.admin.get("exchanges", there.vhost, canary["name"], "bindings", "source")
    assert binding["destination"] == X
    agent.start()
    wait_for_runs(agent, here, 2)
    assert [each["name"] for each in there.canaries()] == [canary["name"]]
    agent.write({}).reload()
    there.wait_clean()


def test_bindings_are_asserted_and_without_permission_for_a_canary_the_link_is_noted(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """A binding or a canary that somebody removed comes back."""
    here.exchange().queue(*KEYS)
    there.exchange()
    admin, user = there.node.admin, f"user of {there.vhost}"
    admin.user(user, "few")
    ours = "^federation(-agent)?: "
    definition = federated(there)
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, user=user, password="few")
    agent = agent_of(here.node).write({here.vhost: definition})

    def run_with(permissions: tuple[str, str, str]) -> None:
        configure, write, read = permissions
        admin.permissions(there.vhost, user, configure=configure, write=write, read=read)
        if not agent.alive:
            agent.start(HURRIED)
        else:
            [found] = ask(agent, "/api/links")
            ask(agent, f"/api/links/{found['id']}/restart", "POST")
        runs.append(len(runs) + 1)
        eventually(lambda: agent.history(*link(here)).count("running") == runs[-1], what="it runs")

    def noted() -> str | None:
        note: str | None = ask(agent, "/api/links")[0]["error"]
        return note

    runs: list[int] = []
    for refused, on in (
        (("^federation: ", "^federation: ", f"^federation: |^{X}$"), "'federation-agent: "),  # none may be declared
        ((f"{ours}|^{X}$", "^federation: ", f"{ours}|^{X}$"), f"'{X}'"),  # nor bound
    ):
        run_with(refused)

        def newly_noted(on: str = on) -> str:
            """The note of the session before stays until there is another."""
            found = noted() or ""
            return found if f"access to exchange {on}" in found else ""

        note = eventually(newly_noted, what="the link is noted")
        assert "bindings are bound again every 25 s instead" in note
        assert f"write on {X!r}" in note
        assert there.canaries() == []

    def attempt() -> float:
        there.delete_exchange()
        begun = time.monotonic()
        there.exchange()
        there.wait_bound(*KEYS)
        return time.monotonic() - begun

    holds_within(BOUND_AGAIN, attempt)
    there.delete_exchange()
    there.wait_bound(*KEYS)
    eventually(lambda: "the upstream exchange was missing, and is bound again" in (noted() or ""), what="it is noted")
    run_with((ours, f"{ours}|^{X}$", f"{ours}|^{X}$"))  # those that the note names are enough
    canary = there.wait_canary()
    eventually(lambda: "bindings are bound again every" not in (noted() or ""), what="that note is gone")

    check_what_is_removed_comes_back(agent, here, there, canary)


def check_what_is_removed_comes_back(agent: Agent, here: Site, there: Site, canary: str) -> None:
    wait_noticing(agent)
    ran = len(agent.history(*link(here)))
    removed = there.federated_bindings()[3]
    path = ("bindings", there.vhost, "e", X, "e", removed["destination"], removed["properties_key"])
    there.node.admin.delete(*path)
    there.wait_bound(*KEYS)
    there.delete_exchange(canary)
    eventually(lambda: [each["name"] for each in there.canaries()] == [canary], what="there is a canary again")
    there.wait_bound(*KEYS)
    assert len(agent.history(*link(here))) == ran


@pytest.mark.thorough
def test_in_a_cluster_a_deletion_on_another_node_is_noticed(agent_of: AgentOf, here: Site, cluster: Cluster) -> None:
    first, other = cluster.nodes
    with first.admin.temporary_vhost(vhost := f"of {here.vhost}"):
        there, elsewhere = Site(first, vhost), Site(other, vhost)
        here.exchange().queue(*KEYS)
        agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
        agent.wait_for("running", link(here))
        wait_noticing(agent)
        elsewhere.delete_exchange()
        elsewhere.exchange()
        elsewhere.wait_bound(*KEYS)
        assert agent.history(*link(here)) == ["running"]
        assert agent.terminate() == 0
