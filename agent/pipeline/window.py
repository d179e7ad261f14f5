"""From when to when the tables tell; both ends are instants in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn


@dataclass(frozen=True, slots=True)
class Bounds:
    start: int
    end: int


def bounds(lines: DataFrame, *, start: int | None, end: int | None) -> Bounds:
    """Where an end isn't given, the data's own first or last line is it."""
    if start is not None and end is not None:
        return Bounds(start, end)
    first, last = lines.select(fn.min("ts"), fn.max("ts")).first() or (None, None)
    began = start if start is not None else first or 0
    return Bounds(began, max(began, end if end is not None else last or 0))
