"""The lab of a session of tests, which its workers join."""

from pathlib import Path
from typing import Final

import pytest

from tests.lab.lab import Lab

LAB: Final = pytest.StashKey[Lab]()
JOINED: Final = "federation_lab"
"""What a worker is told: the directory of the lab."""


def lab_of(config: pytest.Config) -> Lab:
    """Made when first asked for."""
    if LAB not in config.stash:
        joined = getattr(config, "workerinput", {}).get(JOINED)
        config.stash[LAB] = Lab(Path(joined) if joined else None)
    return config.stash[LAB]
