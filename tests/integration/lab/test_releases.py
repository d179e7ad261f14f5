"""Brokers of other releases run in a root of their own, and their absence is a failure that says what to do."""

from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.lab.node import NATIVE_PLUGINS
from tests.lab.releases import DIRECTORY_VARIABLE, Release, ReleaseMissingError, find


@pytest.mark.versions
def test_another_release_serves_stops_and_comes_back(lab: Lab) -> None:
    version = "4."
    node = lab.node("restarted", release="sid", plugins=NATIVE_PLUGINS).start()
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


def test_a_release_that_is_not_there_says_what_to_do(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    with pytest.raises(ReleaseMissingError, match="run `make versions`"):
        lab.node(release="trixie")


def test_a_broker_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ReleaseMissingError, match="run `make setup`"):
        find(None, host=Release(tmp_path))
