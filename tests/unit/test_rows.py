"""Which tests one worker runs together."""

from pathlib import Path

import pytest

from tests.conftest import TOGETHER

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", [path for row in TOGETHER for path in row])
def test_a_row_names_what_is_there(path: str) -> None:
    assert (ROOT / path).exists()
