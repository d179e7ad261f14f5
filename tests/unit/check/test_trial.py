"""Bindings whose queues could get a trial's message."""

from __future__ import annotations

import pytest

from agent.check.trial import routes


@pytest.mark.parametrize(
    ("binding", "type_", "caught"),
    [
        ("#", "topic", True), ("*", "topic", True), ("#.#", "topic", True), ("#.*", "topic", True),
        ("key", "topic", True), ("a", "topic", False), ("*.*", "topic", False), ("#.a", "topic", False),
        ("", "topic", False), ("#", "direct", False), ("key", "direct", True),
    ],
)  # fmt: skip
def test_who_could_get_a_trial(binding: str, type_: str, caught: bool) -> None:
    assert routes(binding, "key", type_=type_) is caught
