"""A source, its standby, and the agent beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, agent_of
from tests.integration.standby.scene import StandbyScene
from tests.lab.lab import Lab

__all__ = ["agent_of"]


@pytest.fixture
def standby(lab: Lab, tmp_path: Path, borrowed: Borrowed, agent_of: AgentOf) -> StandbyScene:
    """On brokers of the test's own: a promotion is noted for a whole cluster."""
    source, here = borrowed(), borrowed()
    return StandbyScene(lab, tmp_path, source, here, agent_of(here))
