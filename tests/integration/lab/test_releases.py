"""Brokers of other releases run in a root of their own, and their absence is a failure that says what to do."""

from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.lab import Lab
from tests.lab.node import NATIVE_PLUGINS
from tests.lab.releases import DIRECTORY_VARIABLE, Release, ReleaseMissingError, find


@pytest.mark.versions
@pytest.mark.parametrize(("release", "version"), [("trixie", "4.0."), ("sid", "4.")])
def test_another_release_serves_stops_and_comes_back(lab: Lab, release: str, version: str) -> None:
    node = lab.node("restarted", release=release, plugins=NATIVE_PLUGINS).start()
    overview = node.admin.get("overview")
    assert overview["rabbitmq_version"].startswith(version)
    assert overview["cluster_name"] == node.cluster_name
    assert node.admin.get("exchanges", "/", "amq.rabbitmq.event")["type"] == "topic"
    assert version in node.ctl("version")
    node.admin.queue("/", "kept")
    node.restart()
    assert node.admin.get("queues", "/", "kept")["durable"]
    node.kill()
    assert not node.alive


@pytest.mark.versions
def test_a_cluster_of_another_release(lab: Lab) -> None:
    cluster = Cluster.of(lab, size=2, release="trixie").start()
    assert {node.admin.get("overview")["cluster_name"] for node in cluster.nodes} == {cluster.name}
    for node in cluster.nodes:
        node.kill()


def test_a_release_that_is_not_there_says_what_to_do(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    with pytest.raises(ReleaseMissingError, match="run `make versions`"):
        lab.node(release="trixie")


def test_a_broker_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ReleaseMissingError, match="run `make setup`"):
        find(None, host=Release(tmp_path))
