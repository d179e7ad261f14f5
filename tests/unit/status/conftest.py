from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.lab.ports import Ports
from tests.unit.status.serving import Serve, Served


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`await serve(token=…)`: a server of this test's own, running."""
    ports = Ports()
    running: list[Served] = []

    async def start(**options: Any) -> Served:
        served = Served(ports.take(), **options)
        await served.server.start()
        running.append(served)
        return served

    yield start
    for served in running:
        await served.server.stop()
    ports.release()
