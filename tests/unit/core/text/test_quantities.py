from __future__ import annotations

import pytest

from agent.core.text.quantities import age, in_words


@pytest.mark.parametrize(
    ("seconds", "short", "words"),
    [
        (-1, "0s", "0 s"),
        (45.9, "45s", "45 s"),
        (250, "4m10s", "4 min"),
        (720, "12m", "12 min"),
        (3600, "1h", "1 h"),
        (12_000, "3h20m", "3 h"),
        (300_000, "3d11h", "3 d"),
        (3_000_000, "34d", "34 d"),
    ],
)
def test_lengths_of_time(seconds: float, short: str, words: str) -> None:
    assert (age(seconds), in_words(seconds)) == (short, words)
