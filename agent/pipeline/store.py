"""The thinned lines of all files read so far, in batches: what a run reads is what came since the one before.

Thinning looks at neighbours. So batches stand beside each other only where, of each agent, link and five minutes, the
times of one don't reach into those of another. Where they would, the files of both are read again together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from agent.pipeline import files, reading, thinning
from agent.pipeline.effort import suited_to_reading
from agent.pipeline.inputs import InputFile, listed
from agent.pipeline.ledger import Batch, Content, Ledger, parse_ledger
from agent.pipeline.steps import READ, begin

_FOLD = ("group", "agent", "link", "cell")


class Store:
    """Nothing counts but what the ledger names: whatever else a run has left behind when it was killed is removed."""

    def __init__(self, spark: SparkSession, directory: str, roots: Sequence[str]) -> None:
        self._spark = spark
        self.directory = directory
        self._roots = roots
        self.ledger = self._opened()

    def catch_up(self) -> None:
        """Reads the files that are new."""
        begin(self._spark, READ)
        present = listed(self._spark, self._roots)
        new = present - self.ledger.files
        if not new and self.ledger.batches:
            return
        gone = [batch for batch in self.ledger.stale(present) if _is_there(batch, present)]
        batch = self._read(new.union(*(batch.files & present for batch in gone)))
        # What was read together may reach around a batch that none of its parts reached into.
        while mixed := [one for one in self._mixed_with(batch, but=gone) if one.files <= present]:
            gone += mixed
            batch = self._read(batch.files.union(*(one.files for one in mixed)))
        self._keep(self.ledger.replaced(gone, batch))
        self._tidy()

    def lines(self) -> DataFrame:
        return self._of(self.ledger.batches)

    def finished(self, made_of: str | None) -> None:
        self._keep(replace(self.ledger, tables=made_of))

    def _opened(self) -> Ledger:
        text = files.read_small(self._spark, self._ledger_path)
        found = parse_ledger(text) if text else Ledger()
        if not found.covers(self._roots):
            files.remove(self._spark, self.directory)
            found = Ledger()
        return replace(found, roots=frozenset(self._roots))

    def _read(self, wanted: Collection[InputFile]) -> Batch:
        """Under a number that no batch has, so that nothing changes until the ledger says so."""
        number = self.ledger.next_number
        while files.exists(self._spark, self._path(number)):
            number += 1
        told = Observation()
        with suited_to_reading(self._spark, size=sum(file.length for file in wanted)):
            lines = reading.read(self._spark, [file.pattern for file in sorted(wanted)])
            thinning.thin(lines).observe(told, *_content()).write.parquet(self._path(number))
        return Batch(number, frozenset(wanted), Content(**told.get))

    def _mixed_with(self, batch: Batch, *, but: Sequence[Batch]) -> list[Batch]:
        """The batches that hold lines of before and after one of this batch, in the same five minutes."""
        others = [one for one in self.ledger.batches if one not in but]
        if not others:
            return []
        mine, theirs = _extents(self._of([batch])), _extents(self._of(others))
        same = [mine[name].eqNullSafe(theirs[name]) for name in _FOLD]
        apart = (mine["until"] < theirs["since"]) | (mine["since"] > theirs["until"])
        rows = mine.join(theirs, [*same, ~apart]).select(theirs["batch"]).distinct().collect()
        found = {int(row[0]) for row in rows}
        return [one for one in others if one.number in found]

    def _of(self, batches: Sequence[Batch]) -> DataFrame:
        read = self._spark.read.option("basePath", self.directory)
        return read.parquet(*(self._path(batch.number) for batch in batches))

    def _keep(self, ledger: Ledger) -> None:
        files.write_text(self._spark, self._ledger_path, ledger.text())
        self.ledger = ledger

    def _tidy(self) -> None:
        kept = {f"batch={batch.number}" for batch in self.ledger.batches}
        files.remove_others(self._spark, self.directory, prefix="batch=", keep=kept)

    def _path(self, number: int) -> str:
        return f"{self.directory}/batch={number}"

    @property
    def _ledger_path(self) -> str:
        return f"{self.directory}/ledger.json"


def _content() -> list[Column]:
    def lines(why: Column) -> Column:
        return fn.coalesce(fn.sum(fn.when(why, fn.col("lines"))), fn.lit(0))

    good = fn.col("why").isNull()
    return [
        lines(fn.lit(True)).alias("read"),
        lines(fn.col("why").isin(reading.MALFORMED, reading.INCOMPLETE)).alias("bad"),
        lines(fn.col("why") == reading.LATER).alias("later_schema"),
        fn.count_if(good).alias("kept"),
        fn.min(fn.when(good, fn.col("ts"))).alias("first"),
        fn.max(fn.when(good, fn.col("ts"))).alias("last"),
    ]


def _is_there(batch: Batch, present: frozenset[InputFile]) -> bool:
    """All that a batch was read from can be read again, be it written anew."""
    paths = {file.path for file in present}
    return all(file.path in paths for file in batch.files)


def _extents(lines: DataFrame) -> DataFrame:
    good = lines.where(fn.col("why").isNull())
    return good.groupBy("batch", *_FOLD).agg(fn.min("ts").alias("since"), fn.max("ts").alias("until"))
