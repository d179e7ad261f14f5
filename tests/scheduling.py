"""Which worker runs which tests: whole files, or whole rows of files that share something costly to start.

pytest-xdist's own `--dist loadgroup` would do, but the group names that xdist 3.8 appends to test ids don't reach its
scheduler under pytest 9.2, so this chooses by path.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

ROWS: Final = (
    ("tests/pipeline", "tests/integration/report"),
    ("tests/integration/page",),
)
"""One worker runs all of a row: another Spark or Chromium would cost more than it gains."""


def unit_of(test_id: str) -> str:
    """What is given to a worker as a whole: the first path of the test's row, or its file."""
    file = PurePosixPath(test_id.partition("::")[0])
    return next((row[0] for row in ROWS if any(file.is_relative_to(each) for each in row)), str(file))


class ByRow(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByRow(config, log)
