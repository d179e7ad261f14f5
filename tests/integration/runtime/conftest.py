"""Two brokers for a plan."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Borrowed
from tests.integration.runtime.planning import Pair


@pytest.fixture
def pair(tmp_path: Path, borrowed: Borrowed, name: Callable[[str], str]) -> Iterator[Pair]:
    """A plan reads all that is defined on a broker, so no other test may use these meanwhile."""
    here, there, vhost = borrowed(), borrowed(), name("vhost")
    with here.admin.temporary_vhost(vhost), there.admin.temporary_vhost(vhost):
        yield Pair(tmp_path, here, there, vhost)
