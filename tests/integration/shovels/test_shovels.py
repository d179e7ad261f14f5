"""What a shovel moves, and where to: the cases of the plugin's own suite, between two brokers."""

from __future__ import annotations

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import running, shovel
from tests.lab.user_program import depth, numbered


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
def test_from_queue_to_queue(agent_of: AgentOf, here: Site, there: Site, ack_mode: str) -> None:
    """Both are declared durable; what waits comes first, and its order stays."""
    there.queue(name="src")
    there.publish(waiting := numbered(500), "src", exchange="")
    running(agent_of(here.node), here, shovel(there, here, ack_mode=ack_mode))
    there.publish(later := numbered(500, start=500), "src", exchange="")
    assert here.take(1_000, queue="dest") == waiting + later
    assert here.node.admin.get("queues", here.vhost, "dest")["durable"]
    assert depth(there.uri, "src") == 0
