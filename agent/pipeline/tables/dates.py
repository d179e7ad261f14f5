"""The dates that a run makes tables for; rows without a date are made by every run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import date

from pyspark.sql import Column
from pyspark.sql import functions as fn


@dataclass(frozen=True, slots=True)
class Dates:
    """From `first` to `last`, if bounded, and additional ones."""

    first: date | None = None
    last: date | None = None
    also: frozenset[date] = frozenset()

    def since(self, day: date, *, also: Collection[date] = ()) -> Dates:
        return replace(self, first=day, also=frozenset(also))

    def hold(self, day: Column) -> Column:
        inside = fn.lit(True)
        if self.first is not None:
            inside &= day >= fn.lit(self.first)
        if self.last is not None:
            inside &= day <= fn.lit(self.last)
        return fn.coalesce(inside | day.isin(*self.also), fn.lit(True))
