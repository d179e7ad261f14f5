"""The agent and its brokers end, and the ways between them; a file for each worker that has time."""

from __future__ import annotations

import pytest

from tests.faults.faults import PROCESSES, Series, as_asked
from tests.faults.judging import put_through
from tests.faults.scene import Scene


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("series", as_asked(PROCESSES), ids=lambda series: series.name)
def test_what_ends_in_the_midst_of_traffic(scene: Scene, series: Series) -> None:
    put_through(scene, series)
