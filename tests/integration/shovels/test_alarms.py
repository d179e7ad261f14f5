"""Memory alarms at either end: the shovel shows that it is blocked, holds little in memory, and goes on afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, error_of, named, shovel
from tests.lab.node import Node
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

PREFETCH: Final = 50
COUNT: Final = 500
MODES: Final = ("on-confirm", "on-publish", "no-ack")
SID: Final = pytest.param("sid", marks=pytest.mark.versions)


@contextmanager
def memory_alarm(node: Node) -> Iterator[None]:
    node.limit_memory("1")
    try:
        yield
    finally:
        node.limit_memory("2GB")


@pytest.mark.parametrize("release", [None, SID])
def test_at_either_end(agent_of: AgentOf, site_on: SiteOn, borrowed: Borrowed, here: Site, release: str | None) -> None:
    """A shovel that begins meanwhile is blocked by its first message, as RabbitMQ blocks only who publishes.

    Nothing is read from the source for the one that is blocked, and that holds up none to another destination. At the
    source it goes on: an alarm stops publishers, and to take messages away is what helps.
    """
    there = site_on(borrowed(release=release))
    there.queue(name="back").publish(numbered(COUNT), "back", exchange="")
    defined = {mode: shovel(here, there, src_queue=f"src.{mode}", dest_queue=mode, ack_mode=mode) for mode in MODES}
    defined["free"] = shovel(here, here, src_queue="src.free", dest_queue="free")
    defined["back"] = shovel(there, here, src_queue="back", dest_queue="back")
    for mode in MODES:
        here.queue(name=f"src.{mode}").publish(["first"], f"src.{mode}", exchange="")
    agent = agent_of(here.node)
    with memory_alarm(there.node):
        limited = {name: found | {"src-prefetch-count": PREFETCH} for name, found in defined.items()}
        agent.write({here.vhost: {"shovels": limited}}).start()
        agent.wait_for("blocked", *(named(here, mode) for mode in MODES))
        shown = {each["name"]: each for each in ask(agent, "/api/shovels")}
        for mode in MODES:
            assert (shown[mode]["state"], shown[mode]["blocked_status"]) == ("blocked", "blocked")
            assert error_of(agent, here, mode) == "shovel destination blocked: low on memory"
            here.publish(numbered(COUNT), f"src.{mode}", exchange="")
        agent.wait_for("running", named(here, "free"), named(here, "back"))
        here.publish(numbered(COUNT), "src.free", exchange="")
        assert here.take(COUNT, queue="free") == numbered(COUNT)
        assert here.take(COUNT, queue="back") == numbered(COUNT)
        eventually(lambda: depth(there.uri, "back") == 0, what="all is acknowledged")
        assert {agent.links()[named(here, mode)]["status"] for mode in MODES} == {"blocked"}
        for mode in MODES:
            assert depth(there.uri, mode) == 0
            if mode != "no-ack":
                assert depth(here.uri, f"src.{mode}") >= COUNT - 2 * PREFETCH
    agent.wait_for("running", *(named(here, mode) for mode in MODES))
    for mode in MODES:
        assert there.take(COUNT + 1, queue=mode) == ["first", *numbered(COUNT)]
        assert depth(here.uri, f"src.{mode}") == 0
    assert not any("backoff" in agent.history(*named(here, name)) for name in defined)
    assert not any("blocked" in agent.history(*named(here, name)) for name in ("free", "back"))
