"""What is remembered of a pause, whatever somebody else has written there."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from agent.core.links.lifecycle import Pause
from agent.core.links.pauses import MOST, from_value, paused


def test_it_is_read_as_it_was_written() -> None:
    pause = paused("ann@ops", 1_790_000_000.5, "disk is replaced")
    assert from_value(asdict(pause)) == pause


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        7,
        "x",
        {},
        {"by": 7, "at": "now", "reason": []},
        {"at": True},
        {"at": math.nan},
        {"at": -1},
        {"at": 1e99},
    ],
)
def test_junk_pauses_too(value: object) -> None:
    assert from_value(value) == Pause()


def test_texts_are_bounded_and_printable() -> None:
    pause = from_value({"by": "a\x1b[31m\nb", "reason": "x" * 10_000})
    assert "\x1b" not in pause.by
    assert "\n" not in pause.by
    assert len(pause.reason) == MOST
