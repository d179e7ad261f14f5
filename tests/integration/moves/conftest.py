"""Two sites on two brokers, and the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.federation.conftest import here, site_on, there
from tests.integration.moves.scene import Moves
from tests.lab.lab import Lab

__all__ = ["here", "site_on", "there"]


@pytest.fixture
def moves(lab: Lab, tmp_path: Path) -> Moves:
    return Moves(lab, tmp_path)
