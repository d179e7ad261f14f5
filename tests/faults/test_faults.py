"""Each fault between two brokers."""

from __future__ import annotations

import pytest

from tests.faults.faults import FAULTS, Fault
from tests.faults.judging import put_through
from tests.faults.scene import Scene


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_in_the_midst_of_traffic(scene: Scene, fault: Fault) -> None:
    put_through(scene, fault)
