"""What is there changes: objects, permissions, room, what a machine offers."""

from __future__ import annotations

import pytest

from tests.faults.faults import OBJECTS, Series, as_asked
from tests.faults.judging import put_through
from tests.faults.scene import Scene


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("series", as_asked(OBJECTS), ids=lambda series: series.name)
def test_what_changes_in_the_midst_of_traffic(scene: Scene, series: Series) -> None:
    put_through(scene, series)
