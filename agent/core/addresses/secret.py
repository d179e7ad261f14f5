"""A value that never shows itself."""

from __future__ import annotations

from dataclasses import dataclass, field

HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Secret:
    """Holds a password or token; only `reveal` tells it, at the place where it is sent."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        return self._value

    def __str__(self) -> str:
        return HIDDEN
