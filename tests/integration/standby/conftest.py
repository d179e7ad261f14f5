"""A source, its standby, and the agent beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, agent_of
from tests.integration.standby.scene import StandbyScene
from tests.lab.lab import Lab

__all__ = ["agent_of"]


@pytest.fixture
def standby_on(
    lab: Lab, tmp_path: Path, borrowed: Borrowed, agent_of: AgentOf
) -> Callable[[str | None, str | None], StandbyScene]:
    """`standby_on(None, "sid")`: a source of this machine's release, and its standby of another; on brokers of the
    test's own, as a promotion is noted for a whole cluster."""

    def made(source_release: str | None, release: str | None) -> StandbyScene:
        source, here = borrowed(release=source_release), borrowed(release=release)
        return StandbyScene(lab, tmp_path, source, here, agent_of(here))

    return made


@pytest.fixture
def standby(standby_on: Callable[[str | None, str | None], StandbyScene]) -> StandbyScene:
    return standby_on(None, None)
