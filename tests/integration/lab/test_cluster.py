"""Nodes are one broker, and stay one when a node goes."""

import pytest

from tests.lab.cluster import Cluster
from tests.lab.waiting import eventually


@pytest.mark.thorough
def test_two_nodes_are_one_broker_and_stay_one_when_one_is_killed(cluster: Cluster) -> None:
    assert {node.admin.get("overview")["cluster_name"] for node in cluster.nodes} == {cluster.name}
    cluster.nodes[0].admin.queue("/", "seen-by-all")
    assert cluster.nodes[1].admin.get("queues", "/", "seen-by-all")["name"] == "seen-by-all"
    cluster.nodes[1].admin.delete("queues", "/", "seen-by-all")

    victim = cluster.nodes[1]
    victim.kill()
    left = {node.erlang_name for node in cluster.nodes if node is not victim}
    eventually(lambda: all(seen == left for seen in cluster.running().values()), what="the others miss it")
    victim.start()
    eventually(lambda: all(len(seen) == 2 for seen in cluster.running().values()), what="it is one of them again")
