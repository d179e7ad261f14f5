"""Links that share connections: one that can't go on must not hold up the others."""

from __future__ import annotations

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, federated
from tests.lab.cluster import Cluster
from tests.lab.user_program import numbered


@pytest.mark.thorough
def test_a_queue_without_majority_holds_up_nobody_else(
    agent_of: AgentOf, there: Site, site_on: SiteOn, cluster: Cluster
) -> None:
    """The broker stops reading a connection on which such a queue is published to."""
    first, second = cluster.nodes
    here = site_on(first)
    for exchange, queue, kind in (("fed.stuck", "stuck", "quorum"), ("fed.well", "well", "classic")):
        here.exchange(exchange)
        first.admin.queue(here.vhost, queue, arguments={"x-queue-type": kind})
        here.bind("k", name=queue, exchange=exchange)
    agent = agent_of(first).write({here.vhost: federated(there)}).start()
    agent.wait_running(2)
    second.kill()
    there.publish(numbered(10_000), exchange="fed.stuck")
    there.publish(numbered(1_000), exchange="fed.well")
    assert here.take(1_000, queue="well") == numbered(1_000)
    [told] = agent.logged("link set apart")
    assert told["name"] == "fed.stuck"
    agent.wait_for("running", (here.vhost, "fed.well", "origin"), (here.vhost, "fed.stuck", "origin"))
    assert agent.logged("unexpected error") == []
    second.start()
    assert sorted(set(here.take(10_000, queue="stuck"))) == numbered(10_000)
    assert agent.terminate() == 0
