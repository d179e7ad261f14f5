"""Two brokers for a check."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.preflight.scene import Pair
from tests.lab.node import Node


def arranged(directory: Path, here: Node, there: Node, vhost: str) -> Pair:
    for node in (here, there):
        node.admin.exchange(vhost, "x")
    here.admin.queue(vhost, "q")
    here.admin.bind(vhost, "x", "q", "key")
    return Pair(directory, here, there, vhost)


@pytest.fixture
def pair(tmp_path: Path, broker: Node, second_broker: Node, vhost: str) -> Iterator[Pair]:
    with second_broker.admin.temporary_vhost(vhost):
        yield arranged(tmp_path, broker, second_broker, vhost)
