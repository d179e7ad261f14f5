"""From when to when the tables tell; both ends are instants in microseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    start: int
    end: int


def bounds(first: int | None, last: int | None, *, start: int | None, end: int | None) -> Bounds:
    """Where an end isn't given, the data's own first or last line is it."""
    began = start if start is not None else first or 0
    return Bounds(began, max(began, end if end is not None else last or 0))
