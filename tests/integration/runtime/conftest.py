"""Two brokers for a plan."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.runtime.planning import Pair
from tests.lab.node import Node


@pytest.fixture
def pair(tmp_path: Path, broker: Node, second_broker: Node, vhost: str) -> Iterator[Pair]:
    with second_broker.admin.temporary_vhost(vhost):
        yield Pair(tmp_path, broker, second_broker, vhost)
