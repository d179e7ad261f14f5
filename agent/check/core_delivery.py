"""Whether a message of a trial could get to anybody's queue besides the trial's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

TRIED_TYPES: Final = ("direct", "topic")


def is_caught(binding: str, key: str, *, type_: str) -> bool:
    """Whether a binding of that type of exchange takes messages of `key`, which has one word."""
    if type_ == "direct":
        return binding == key
    words = [word for word in binding.split(".") if word != "#"]
    return binding != "" and (words in ([], ["*"], [key]))


def catching(bindings: Iterable[tuple[str, str]], key: str, *, type_: str) -> str | None:
    """The first of (routing key, destination) whose destination would get the message."""
    return next((destination for binding, destination in bindings if is_caught(binding, key, type_=type_)), None)
