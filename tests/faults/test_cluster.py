"""One node of three is killed: the one that the link, and its queue's leader, are on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.faults.faults import Fault, Series, alone
from tests.faults.judging import FLOWS_AGAIN, RELEASE, put_through
from tests.faults.scene import Ends, Scene, Setting
from tests.faults.traffic import until
from tests.lab.cluster import Cluster
from tests.lab.lab import Lab
from tests.lab.node import Node

AWAY: Final = 10.0


def any_but_the_users(scene: Scene) -> list[str]:
    return [node.uri(scene.up.vhost) for node in scene.ends.up[:-1]]


def kill_leader(scene: Scene) -> Node:
    """The node that the link's queue lives on."""

    def leader() -> object:
        return scene.up.node.admin.get("queues", scene.up.vhost, scene.queue).get("node")

    assert until(lambda: leader() is not None, FLOWS_AGAIN), "the HTTP API doesn't know where the queue lives"
    [node] = [each for each in scene.ends.up if each.erlang_name == leader()]
    node.kill()
    return node


def kill_and_start(scene: Scene) -> None:
    """A classic queue is away as long as its node."""
    node = kill_leader(scene)
    time.sleep(AWAY)
    node.start()


def kill_and_flow(scene: Scene) -> None:
    """A quorum queue has another leader at once."""
    began = time.monotonic()
    node = kill_leader(scene)
    assert until(lambda: scene.traffic.account.first_after(began + 1) is not None, FLOWS_AGAIN), scene.link()
    node.start()


FAULTS: Final = (
    Fault(
        "a node of three is killed, with a classic queue",
        kill_and_start,
        ("backoff", ""),
        setting=Setting(uri=any_but_the_users),
    ),
    Fault(
        "a node of three is killed, with a quorum queue",
        kill_and_flow,
        ("backoff", ""),
        setting=Setting(uri=any_but_the_users, upstream={"queue-type": "quorum"}),
    ),
)


@pytest.fixture(scope="module")
def ends(lab: Lab) -> Iterator[Ends]:
    cluster = Cluster.of(lab, "faulty-cluster", release=RELEASE).start()
    down = lab.node("faulty-down", release=RELEASE).start()
    yield Ends(cluster.nodes, down)
    for node in (*cluster.nodes, down):
        if node.alive:
            node.kill()


@pytest.mark.thorough
@pytest.mark.parametrize("series", map(alone, FAULTS), ids=lambda series: series.name)
def test_a_node_of_a_cluster(scene: Scene, series: Series) -> None:
    put_through(scene, series)
