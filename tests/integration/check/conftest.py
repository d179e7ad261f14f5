"""Two brokers for a check."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Borrowed
from tests.integration.check.pair import Pair
from tests.lab.node import Node
from tests.lab.waiting import eventually


def arranged(directory: Path, here: Node, there: Node, vhost: str) -> Pair:
    for node in (here, there):
        node.admin.exchange(vhost, "x")
        eventually(partial(_has_statistics, node), what="the HTTP API shows alarms")
    here.admin.queue(vhost, "q")
    here.admin.bind(vhost, "x", "q", "key")
    return Pair(directory, here, there, vhost)


def _has_statistics(node: Node) -> bool:
    """Within seconds of the node's start."""
    return all("mem_alarm" in each for each in node.admin.get("nodes"))


@pytest.fixture
def pair(tmp_path: Path, borrowed: Borrowed, name: Callable[[str], str]) -> Iterator[Pair]:
    """A check reads all that is defined on a broker, so no other test may use these meanwhile."""
    here, there, vhost = borrowed(), borrowed(), name("vhost")
    with here.admin.temporary_vhost(vhost), there.admin.temporary_vhost(vhost):
        yield arranged(tmp_path, here, there, vhost)
