"""Links that share connections: one that can't go on must not hold up the others."""

from __future__ import annotations

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.desk import numbered
from tests.integration.federation.sites import Site, federated
from tests.lab.cluster import Cluster
from tests.lab.lab import Lab


def test_a_queue_without_majority_holds_up_nobody_else(agent_of: AgentOf, there: Site, lab: Lab) -> None:
    """The broker stops reading a connection on which such a queue is published to."""
    cluster = Cluster.of(lab, size=2).start()
    first, second = cluster.nodes
    here = Site(first, "/")
    for exchange, queue, kind in (("fed.stuck", "stuck", "quorum"), ("fed.well", "well", "classic")):
        here.exchange(exchange)
        first.admin.queue("/", queue, arguments={"x-queue-type": kind})
        here.bind("k", name=queue, exchange=exchange)
    agent = agent_of(first).write({"/": federated(there)}).start()
    agent.wait_running(2)
    second.kill()
    there.publish(numbered(10_000), exchange="fed.stuck")
    there.publish(numbered(1_000), exchange="fed.well")
    assert here.take(1_000, queue="well") == numbered(1_000)
    [told] = agent.told("link set apart")
    assert told["name"] == "fed.stuck"
    agent.wait_for("running", ("/", "fed.well", "origin"), ("/", "fed.stuck", "origin"))
    assert agent.told("unexpected error") == []
    second.start()
    assert sorted(set(here.take(10_000, queue="stuck"))) == numbered(10_000)
    assert agent.terminate() == 0
    for node in cluster.nodes:
        node.kill()
