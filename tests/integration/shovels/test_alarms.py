"""Memory alarms at either end: the shovel shows that it is blocked, holds little in memory, and goes on afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, error_of, named, running, shovel, shovels
from tests.lab.node import Node
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually
from tests.tiers import thorough

PREFETCH: Final = 50
COUNT: Final = 1_000
SID: Final = pytest.param("sid", marks=pytest.mark.versions)

BrokerOn = Callable[..., Node]


@contextmanager
def memory_alarm(node: Node) -> Iterator[None]:
    node.limit_memory("1")
    try:
        yield
    finally:
        node.limit_memory("2GB")


@pytest.mark.parametrize("release", [None, SID])
@pytest.mark.parametrize(
    "ack_mode",
    [
        "on-confirm",
        thorough("on-publish"),
        thorough("no-ack"),
    ],
)
def test_at_the_destination(
    agent_of: AgentOf, site_on: SiteOn, borrowed: Borrowed, here: Site, *, ack_mode: str, release: str | None
) -> None:
    """A shovel that begins meanwhile is blocked by its first message, as RabbitMQ blocks only who publishes."""
    there = site_on(borrowed(release=release))
    here.queue(name="src").publish(["first"], "src", exchange="")
    agent = agent_of(here.node)
    with memory_alarm(there.node):
        definition = shovel(here, there, ack_mode=ack_mode, src_prefetch_count=PREFETCH)
        agent.write({here.vhost: shovels(definition)}).start()
        agent.wait_for("blocked", named(here))
        [found] = ask(agent, "/api/shovels")
        assert (found["state"], found["blocked_status"]) == ("blocked", "blocked")
        assert error_of(agent, here) == "shovel destination blocked: low on memory"
        here.publish(numbered(COUNT), "src", exchange="")
        assert depth(there.uri, "dest") == 0
        if ack_mode != "no-ack":
            assert depth(here.uri, "src") >= COUNT - 2 * PREFETCH
    agent.wait_for("running", named(here))
    assert there.take(COUNT + 1, queue="dest") == ["first", *numbered(COUNT)]
    assert depth(here.uri, "src") == 0
    assert agent.history(here.vhost, "drain", "").count("backoff") == 0


@pytest.mark.parametrize("release", [None, SID])
def test_at_the_source_it_goes_on(
    agent_of: AgentOf, site_on: SiteOn, borrowed: Borrowed, here: Site, release: str | None
) -> None:
    """An alarm stops publishers; to take messages away is what helps."""
    there = site_on(borrowed(release=release))
    agent = running(agent_of(here.node), here, shovel(there, here, src_prefetch_count=PREFETCH))
    [link] = ask(agent, "/api/links")
    ask(agent, f"/api/links/{link['id']}/pause", "POST")
    agent.wait_for("paused", named(here))
    there.wait_unconsumed()
    there.publish(numbered(COUNT), "src", exchange="")
    with memory_alarm(there.node):
        ask(agent, f"/api/links/{link['id']}/resume", "POST")
        assert here.take(COUNT, queue="dest") == numbered(COUNT)
        eventually(lambda: depth(there.uri, "src") == 0, what="all is acknowledged")
    assert "blocked" not in agent.history(here.vhost, "drain", "")


def test_shovels_from_the_same_source_to_other_destinations_go_on(
    agent_of: AgentOf, site_on: SiteOn, borrowed: Borrowed, here: Site
) -> None:
    """Nothing is read from the source for the one that is blocked, and that must hold up no other."""
    there = site_on(borrowed())
    blocked = shovel(here, there, src_queue="for there", dest_queue="got", src_prefetch_count=PREFETCH)
    free = shovel(here, here, src_queue="for here", dest_queue="got", src_prefetch_count=PREFETCH)
    agent = agent_of(here.node).write({here.vhost: {"shovels": {"blocked": blocked, "free": free}}}).start()
    agent.wait_running(2)
    with memory_alarm(there.node):
        here.publish(["first"], "for there", exchange="")
        agent.wait_for("blocked", named(here, "blocked"))
        here.publish(numbered(COUNT), "for here", exchange="")
        assert here.take(COUNT, queue="got") == numbered(COUNT)
        assert agent.links()[named(here, "blocked")]["status"] == "blocked"
    assert there.take(1, queue="got") == ["first"]
