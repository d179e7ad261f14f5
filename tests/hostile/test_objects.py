"""Objects of one vhost that AMQP can't represent are that vhost's problem, on a real broker that takes them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from agent.amqp.connect import connect_any
from agent.amqp.wire import methods
from agent.core import fields
from agent.core.addresses.uri import parse
from tests.acceptance.command import federation_agent
from tests.hostile.peer import HostileBroker, Peer
from tests.hostile.scene import Scene, stopped_at_the_end
from tests.integration.federation.sites import Site
from tests.integration.status.asking import get, metric
from tests.lab.waiting import eventually

NESTED: Final = 1200
HUGE: Final = {"n": 10**400}
FIRST: Final = ("nested exchange", "binding")
"""One that is read with the exchanges, and one that is read by itself."""


async def lets_in(peer: Peer) -> None:
    await peer.log_in()
    await peer.serve()


def nest(site: Site) -> None:
    """An exchange that would be federated, with arguments as deep as only AMQP declares them."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * NESTED)
    try:
        asyncio.run(_declare_nested(site))
    finally:
        sys.setrecursionlimit(before)


async def _declare_nested(site: Site) -> None:
    value = fields.text("x")
    for _ in range(NESTED):
        value = fields.array(value)
    async with await connect_any([parse(site.uri)], where="test", name="test") as connection:
        channel = await connection.channel()
        declared: dict[str, Any] = {"exchange": "fed.bad", "type": "topic", "durable": True}
        await channel.ask(methods.EXCHANGE_DECLARE, **declared, arguments=(("deep", value),))


OBJECTS: Final[dict[str, tuple[Callable[[Site], object], str]]] = {
    "exchange": (lambda site: site.exchange("fed.bad", arguments=HUGE), "exchange 'fed.bad' (it holds a number"),
    "nested exchange": (nest, "exchange 'fed.bad' (it is nested deeper than"),
    "large exchange": (
        lambda site: site.exchange("fed.bad", arguments={"a": "y" * 4_500_000}),
        "exchange 'fed.bad' (it is larger than",
    ),
    "queue": (lambda site: site.node.admin.queue(site.vhost, "bad", arguments=HUGE), "queue 'bad' (it holds a number"),
    "binding": (lambda site: site.bind("k", arguments=HUGE), "the binding with key 'k' of exchange 'fed.x' (it holds"),
}


@pytest.mark.parametrize(
    ("make", "shows"),
    [
        pytest.param(*found, id=name, marks=() if name in FIRST else pytest.mark.thorough)
        for name, found in OBJECTS.items()
    ],
)
def test_a_bad_object_is_the_problem_of_its_vhost(scene: Scene, make: Callable[[Site], object], shows: str) -> None:
    with HostileBroker(lets_in) as upstream, stopped_at_the_end(scene):
        scene.start(upstream.uri)
        scene.agent.wait_for("running", scene.hostile_link)
        before = scene.agent.history(*scene.hostile_link)
        make(scene.victim)
        scene.there.exchange("fed.new")
        scene.here.exchange("fed.new").queue("#", name="new.q", exchange="fed.new")
        scene.agent.signal(signal.SIGHUP)
        scene.agent.wait_for("running", (scene.here.vhost, "fed.new", "origin"))
        eventually(lambda: shows in "; ".join(get(scene.agent, "/api/overview")["problems"]), what="the problem")
        [problem] = get(scene.agent, "/api/overview")["problems"]
        assert f"vhost '{scene.victim.vhost}' holds what can't be federated" in problem
        assert metric(scene.agent, "federation_agent_config_reload_success") == 0
        assert metric(scene.agent, "federation_agent_config_refusals_total") == 1
        scene.endure(0.5)
        assert scene.agent.history(*scene.hostile_link) == before
        if "exchange 'fed.bad'" in shows:
            scene.agent.wait_for("invalid", (scene.victim.vhost, "fed.bad", "hostile"))
        done = federation_agent("plan", "-c", str(scene.agent.path), cwd=scene.agent.directory)
        assert done.status == 0, done.err
        assert shows in done.err
        assert "Traceback" not in done.err
