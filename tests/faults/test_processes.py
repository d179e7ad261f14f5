"""The agent and its brokers end, and the ways between them; a file for each worker that has time."""

from __future__ import annotations

import pytest

from tests.faults.faults import OF_PROCESSES, Fault
from tests.faults.judging import put_through
from tests.faults.scene import Scene


@pytest.mark.thorough
@pytest.mark.parametrize("fault", OF_PROCESSES, ids=lambda fault: fault.name)
def test_what_ends_in_the_midst_of_traffic(scene: Scene, fault: Fault) -> None:
    put_through(scene, fault)
