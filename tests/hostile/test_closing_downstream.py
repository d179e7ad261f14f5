"""A downstream that closes the connection over messages in which nothing is wrong that anybody else could see."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import Call
from tests.hostile.peer import HostileBroker, Peer
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import X
from tests.integration.status.asking import get
from tests.lab.node import Node
from tests.lab.waiting import eventually

POISON: Final = b"p"
INTERNAL_ERROR: Final = 541


@dataclass
class Fragile:
    """Confirms every message, but closes the connection over those whose body is one byte."""

    taken: Counter[bytes] = field(default_factory=Counter)
    closed: int = 0

    async def __call__(self, peer: Peer) -> None:
        await peer.log_in()
        published: Counter[int] = Counter()
        while True:
            kind, channel, payload = await peer.read()
            if kind == frames.METHOD and (call := methods.decode(payload)).method is not methods.BASIC_PUBLISH:
                await peer.answer(channel, call)
            elif kind == frames.BODY:
                if payload == POISON:
                    self.closed += 1
                    await peer.say(0, methods.CONNECTION_CLOSE, code=INTERNAL_ERROR, text="INTERNAL_ERROR")
                    await peer.expect(methods.CONNECTION_CLOSE_OK)
                    return
                self.taken[payload] += 1
                published[channel] += 1
                await peer.say(channel, methods.BASIC_ACK, delivery_tag=published[channel])


async def refuses_confirms(peer: Peer) -> None:
    """Closes the channel that a link publishes on."""
    await peer.log_in()

    async def close(peer: Peer, channel: int, call: Call) -> None:
        text = "NOT_IMPLEMENTED - confirms"
        await peer.say(channel, methods.CHANNEL_CLOSE, code=540, text=text, class_id=call.method.ids[0])

    await peer.serve({methods.CONFIRM_SELECT: close})


def test_a_downstream_that_refuses_a_channel_is_named_and_counted(
    agent_of: AgentOf, site_on: SiteOn, broker: Node
) -> None:
    """Its own words don't begin with the side."""
    there = site_on(broker).exchange()
    with HostileBroker(refuses_confirms) as hostile:
        agent = agent_of(there.node, management=False, uri=hostile.uri)
        agent.write(
            upstreams={"origin": {"uri": there.uri, "reconnect-delay": 60}},
            exchanges={X: {"type": "topic", "upstream-set": "all"}},
            bindings={X: [{"key": "#"}]},
        ).start()
        agent.wait_for("running", ("/", X, "origin"))
        there.publish(["the first, which opens the channel"])
        agent.wait_for("backoff", ("/", X, "origin"))
        [link] = get(agent, "/api/links")
        error = f"downstream 127.0.0.1:{hostile.port}: NOT_IMPLEMENTED - confirms"
        assert link["error"] == error
        [*_, last] = get(agent, f"/api/links/{link['id']}")["history"]["transitions"]
        assert last["reason"] == "downstream_closed"
        assert agent.terminate() == 0


def test_the_message_that_closes_the_connection_is_found_and_the_others_come_through(
    agent_of: AgentOf, site_on: SiteOn, broker: Node
) -> None:
    there = site_on(broker).exchange()
    fragile = Fragile()
    with HostileBroker(fragile) as hostile:
        agent = agent_of(there.node, management=False, uri=hostile.uri)
        agent.write(
            upstreams={"origin": {"uri": there.uri, "reconnect-delay": 0.5}},
            exchanges={X: {"type": "topic", "upstream-set": "all"}},
            bindings={X: [{"key": "#"}]},
        ).start()
        agent.wait_for("running", ("/", X, "origin"))
        bodies = [f"message {number}" for number in range(60)]
        there.publish([*bodies[:20], "p", *bodies[20:40], "p", *bodies[40:]])
        expected = {body.encode() for body in bodies}
        eventually(lambda: expected <= fragile.taken.keys(), what="all that is harmless comes through")
        assert fragile.closed <= 4

        def is_over() -> bool:
            [link] = get(agent, "/api/links")
            return (link["quarantined"], link["status"], link["error"]) == (2, "running", None)

        eventually(is_over, what="what isn't is in quarantine")
        closed = fragile.closed
        there.publish(["after"])
        eventually(lambda: fragile.taken[b"after"] == 1, what="what comes later flows on")
        assert fragile.closed == closed
        assert agent.terminate() == 0
