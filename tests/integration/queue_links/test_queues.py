"""Messages move to where consumers are."""

from __future__ import annotations

import time

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import (
    NO_CONSUMERS,
    Q,
    User,
    declare,
    federated,
    queue,
    upstream_consumers,
    wait_error,
)
from tests.lab import user_program
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually


def test_messages_move_only_where_a_consumer_is(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare(here)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", queue(here))
    wait_error(agent, NO_CONSUMERS)
    there.publish(bodies := numbered(50), Q, exchange="")  # the queue was declared upstream
    time.sleep(1)
    assert user_program.depth(there.uri, Q) == 50
    assert upstream_consumers(there) == 0
    with User(here) as user:
        begun = time.monotonic()
        assert user.wait(50) == bodies
        assert time.monotonic() - begun < 1.5
        eventually(lambda: upstream_consumers(there) == 1, 2, what="the link consumes")
    eventually(lambda: upstream_consumers(there) == 0, 2.5, what="the link has cancelled")
    there.publish(numbered(10), Q, exchange="")
    time.sleep(0.5)
    assert user_program.depth(there.uri, Q) == 10
    wait_error(agent, NO_CONSUMERS)
    with User(here) as user:
        user.wait(10)
    assert agent.terminate() == 0
    assert agent.told("unexpected error") == []
