"""A link to an upstream that misbehaves says what was wrong, and doesn't hammer it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, Final

from tests.hostile import misbehaviours
from tests.hostile.peer import HostileBroker
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Named
from tests.integration.federation.sites import policies
from tests.lab.node import Node
from tests.lab.waiting import eventually

PATIENCE: Final = 5  # seconds for an answer
WATCHED: Final = 6.0
REASONS: Final = {
    misbehaviours.empty_bodies: "broken AMQP: a body frame of 0 bytes that isn't its message's last",
    misbehaviours.bodies_byte_by_byte: "broken AMQP: a body frame of 1 bytes that isn't its message's last",
    misbehaviours.channel_0_methods: "broken AMQP: connection.tune, which nothing asked for",
    misbehaviours.flow_frames: "broken AMQP: over 10 channel.flow in a second",
    misbehaviours.large_start: "broken AMQP: a frame of 8000018 bytes",
    misbehaviours.closes_behind_open: "connection lost: closed by the peer without a word",
    misbehaviours.unasked_content: "broken AMQP: basic.deliver without a consumer",
    misbehaviours.answers_no_declare: "no answer to queue.declare 'federation: fed.x -> ",
    misbehaviours.reads_nothing: f"no answer to channel.open within {PATIENCE} s",
}


def test_a_link_says_why_it_is_down_and_waits_before_it_tries_again(
    agent_of: AgentOf, site_on: SiteOn, broker: Node
) -> None:
    here = site_on(broker).exchange()
    here.queue("#")
    upstreams: dict[str, Any] = {}
    with ExitStack() as peers:
        hostile = {each.__name__: peers.enter_context(HostileBroker(each)) for each in REASONS}
        for name, peer in hostile.items():
            uri = f"{peer.uri}/up?connection_timeout={PATIENCE * 1000}"
            upstreams[name] = {"uri": uri, "reconnect-delay": 0 if name == "closes_behind_open" else 5}
        agent = agent_of(broker).write({here.vhost: {"upstreams": upstreams, "policies": policies()}}).start()
        began, links = time.monotonic(), {name: (here.vhost, "fed.x", name) for name in hostile}

        def down() -> bool:
            return all(agent.links()[link]["error"] for link in links.values())

        eventually(down, what="all links are down", ignoring=(OSError, KeyError))
        time.sleep(max(0.0, began + WATCHED - time.monotonic()))

        def as_said() -> dict[Named, dict[str, Any]]:
            shown = agent.links()
            said = ((shown[links[each.__name__]], why) for each, why in REASONS.items())
            is_said = all(told["status"] == "backoff" and why in (told["error"] or "") for told, why in said)
            return shown if is_said else {}

        found = eventually(as_said, what="each says why", ignoring=(OSError, KeyError))
        logins = {name: peer.connections for name, peer in hostile.items()}
        for behaviour, why in REASONS.items():
            name = behaviour.__name__
            told = found[links[name]]
            assert told["status"] == "backoff", told
            where = f"upstream {name} 127.0.0.1:{hostile[name].port}: "
            assert told["error"].startswith(where + why), told["error"]
        # Three connections an attempt at most: after 0, 0.1, 0.2, 0.4 … s, then one attempt in every 0.25 to 0.5 s
        # where the delay is 0, and in every 2.5 to 5 s elsewhere.
        elapsed = time.monotonic() - began
        assert logins.pop("closes_behind_open") <= 10 + 4 * elapsed
        assert all(count <= 30 + 2 * elapsed for count in logins.values()), logins
        assert agent.terminate() == 0
