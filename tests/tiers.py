"""Which cases of a test are in which tier; see docs/testing.md."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet


def thorough(*values: object) -> ParameterSet:
    """A case that only `make test-all` runs."""
    return pytest.param(*values, marks=pytest.mark.thorough)
