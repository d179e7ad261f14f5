"""The period of the tables; both ends are instants in microseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    start: int
    end: int


def bounds(first: int | None, last: int | None, *, start: int | None, end: int | None) -> Bounds:
    """An end that isn't given is the first or last line of the data."""
    began = start if start is not None else first or 0
    return Bounds(began, max(began, end if end is not None else last or 0))
