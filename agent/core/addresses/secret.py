"""A value that is never shown."""

from __future__ import annotations

from dataclasses import dataclass, field

HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Secret:
    """Holds a password or token; only `reveal` returns it, for sending."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        return self._value

    def __str__(self) -> str:
        return HIDDEN
