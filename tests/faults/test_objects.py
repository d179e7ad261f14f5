"""What is there changes: objects, permissions, room, what a machine offers."""

from __future__ import annotations

import pytest

from tests.faults.faults import OF_OBJECTS, Fault
from tests.faults.judging import put_through
from tests.faults.scene import Scene


@pytest.mark.thorough
@pytest.mark.parametrize("fault", OF_OBJECTS, ids=lambda fault: fault.name)
def test_what_changes_in_the_midst_of_traffic(scene: Scene, fault: Fault) -> None:
    put_through(scene, fault)
