"""Each fault between two brokers."""

from __future__ import annotations

from typing import Final

import pytest

from tests.faults.faults import FAULTS, Fault
from tests.faults.judging import ALL, put_through
from tests.faults.scene import Scene

CHOSEN: Final = [fault for fault in FAULTS if ALL or fault.is_short]


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", CHOSEN, ids=lambda fault: fault.name)
def test_a_fault_in_the_midst_of_traffic(scene: Scene, fault: Fault) -> None:
    put_through(scene, fault)
