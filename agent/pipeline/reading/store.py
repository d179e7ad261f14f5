"""The thinned lines of all files read so far, in batches: a run reads the files that arrived since the previous one.

Thinning compares neighbours. So two batches stay separate only if, for each agent and five minutes, their times don't
overlap. If they do, the files of both are read again together.

A few lines represent a settled day if its own tables aren't made.

Why: docs/decisions/0059-thinned-lines.md
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import LongType, StructField, StructType

from agent.pipeline import files
from agent.pipeline.reading import parsing, thinning
from agent.pipeline.reading.ledger import Batch, Content, ExistingTables, InputFile, Ledger, parse_ledger
from agent.pipeline.schema import CELL, DAY, KEPT_LINES
from agent.pipeline.spark import COMPACT, READ, SETTLE, begin_step, settings_for_reading
from agent.pipeline.window import bounds

_THINNED_BY: Final = ("agent", "cell")
_BATCH: Final = "batch="
COMPACT_FILES: Final = 4
_FINISHED: Final = "*.jsonl"
_LISTING: Final = "path string, modificationTime timestamp, length bigint, content binary"


class Store:
    """The lines in a directory. Only what its ledger names counts: other leftovers of a killed run are removed."""

    def __init__(self, spark: SparkSession, directory: str, roots: Sequence[str]) -> None:
        self.spark = spark
        self.directory = directory
        self._roots = roots
        self._settled_path = f"{directory}/settled"
        self._ledger_path = f"{directory}/ledger.json"
        self.ledger = self._open_ledger()

    def catch_up(self) -> None:
        """Reads the files that are new."""
        begin_step(self.spark, READ)
        present = finished_files(self.spark, self._roots)
        new = present - self.ledger.files
        gone = [*self.ledger.stale(present)]
        if not new and not gone and self.ledger.batches:
            return
        batch = self._read(new.union(*(batch.files & present for batch in gone)))
        # Files read together may surround a batch that none of them overlapped alone.
        while mixed := [one for one in self._overlapping(batch, but=gone) if one.files <= present]:
            gone += mixed
            batch = self._read(batch.files.union(*(one.files for one in mixed)))
        self._save(self.ledger.replaced(gone, batch))
        self._remove_unused()

    def lines(self, since: int) -> DataFrame:
        """The accepted lines: all from that instant on, and as many of the earlier ones as needed."""
        day = self.ledger.settled_before(since)
        lines = self._batch_lines(self.ledger.batches_from(day)).where(fn.col("why").isNull())
        good = lines.drop("why", "line", "file", "schema", "batch")
        if not day:
            return good
        return self._settled_lines(day, like=good).unionByName(good.where(fn.col("cell") >= day * DAY))

    def rejected(self) -> DataFrame:
        return self._batch_lines(self.ledger.batches).where(fn.col("why").isNotNull())

    def record(self, tables: ExistingTables | None) -> None:
        self._save(replace(self.ledger, tables=tables))

    def mark_outdated(self, *, since: int) -> None:
        """If this run is killed, the next one makes the tables from that instant on."""
        existing = self.ledger.tables
        self.record(existing and replace(existing, touched=since))

    def settle(self) -> None:
        """Settles past days for future runs."""
        since, until = self.ledger.settled, self.ledger.to_settle()
        if until <= since:
            return
        begin_step(self.spark, SETTLE)
        # Left by a killed run, or no longer settled.
        files.remove_others(self.spark, self._settled_path, keep=lambda name: 0 <= _day_of_entry(name) < since)
        read = self.ledger.content()
        few = thinning.settled(self.lines(since * DAY * CELL), bounds(read.first, read.last, start=None, end=None))
        new = few.where(fn.col("day").between(since, until - 1)).repartition("day")
        new.write.partitionBy("day").mode("append").parquet(self._settled_path)
        self._save(
            replace(self.ledger, settled=until, settled_lines=self._settled_lines(until, like=few.drop("day")).count())
        )

    def compact(self) -> None:
        """Makes one batch of many small ones whose days are settled: each run adds one, and each has its files."""
        for group in self.ledger.to_compact():
            begin_step(self.spark, COMPACT)
            number = self._unused_number()
            self._batch_lines(group).drop("batch").coalesce(COMPACT_FILES).write.parquet(self._path(number))
            self._save(self.ledger.compacted(group, number))
        self._remove_unused()

    def _settled_lines(self, before: int, *, like: DataFrame) -> DataFrame:
        """The lines of settled days."""
        reader = self.spark.read.schema(StructType([*like.schema, StructField("day", LongType())]))
        found = reader.parquet(files.literal_path(self.spark, self._settled_path))
        return found.where(fn.col("day") < before).drop("day")

    def _open_ledger(self) -> Ledger:
        text = files.read_small(self.spark, self._ledger_path)
        found = parse_ledger(text) if text else Ledger()
        if not found.covers(self._roots):
            # The ledger comes last: if this is interrupted, nothing counts.
            files.remove(self.spark, self._ledger_path)
            files.remove(self.spark, self.directory)
            found = Ledger()
        return replace(found, roots=frozenset(self._roots))

    def _read(self, wanted: Collection[InputFile]) -> Batch:
        """Writes under an unused number, so that nothing changes until the ledger names it."""
        number = self._unused_number()
        observed = Observation()
        with settings_for_reading(self.spark, size=sum(file.length for file in wanted)):
            lines = parsing.read(self.spark, [files.escaped(file.path) for file in sorted(wanted)])
            thinning.thin(lines).observe(observed, *_content()).write.parquet(self._path(number))
        return Batch(number, frozenset(wanted), Content(**observed.get))

    def _unused_number(self) -> int:
        number = self.ledger.next_number
        while files.exists(self.spark, self._path(number)):
            number += 1
        return number

    def _overlapping(self, batch: Batch, *, but: Sequence[Batch]) -> list[Batch]:
        """The batches with lines before and after one of this batch, in the same five minutes."""
        others = [one for one in self.ledger.batches if one not in but and one.meets(batch)]
        if not others:
            return []
        first, last = batch.content.first, batch.content.last
        near = fn.col("ts").between(fn.lit(first) - CELL, fn.lit(last) + CELL)
        mine, theirs = _extents(self._batch_lines([batch])), _extents(self._batch_lines(others).where(near))
        same = [mine[name].eqNullSafe(theirs[name]) for name in _THINNED_BY]
        apart = (mine["until"] < theirs["since"]) | (mine["since"] > theirs["until"])
        rows = mine.join(theirs, [*same, ~apart]).select(theirs["batch"]).distinct().collect()
        found = {int(row[0]) for row in rows}
        return [one for one in others if one.number in found]

    def _batch_lines(self, batches: Sequence[Batch]) -> DataFrame:
        read = self.spark.read.schema(KEPT_LINES).option("basePath", self.directory)
        return read.parquet(*(files.literal_path(self.spark, self._path(batch.number)) for batch in batches))

    def _save(self, ledger: Ledger) -> None:
        files.write_text(self.spark, self._ledger_path, ledger.text())
        self.ledger = ledger

    def _remove_unused(self) -> None:
        kept = {f"{_BATCH}{batch.number}" for batch in self.ledger.batches}
        files.remove_others(self.spark, self.directory, keep=lambda name: name in kept or not name.startswith(_BATCH))

    def _path(self, number: int) -> str:
        return f"{self.directory}/{_BATCH}{number}"


def _content() -> list[Column]:
    def lines(why: Column) -> Column:
        return fn.coalesce(fn.sum(fn.when(why, fn.col("lines"))), fn.lit(0))

    good = fn.col("why").isNull()
    return [
        lines(fn.lit(True)).alias("read"),
        lines(fn.col("why").isin(*parsing.BAD)).alias("bad"),
        lines(fn.col("why") == parsing.LATER).alias("later_schema"),
        fn.count_if(good).alias("kept"),
        fn.min(fn.when(good, fn.col("ts"))).alias("first"),
        fn.max(fn.when(good, fn.col("ts"))).alias("last"),
        fn.max("interval").alias("interval"),
    ]


def _day_of_entry(name: str) -> int:
    return int(name.removeprefix("day=")) if name.startswith("day=") else -1


def _extents(lines: DataFrame) -> DataFrame:
    good = lines.where(fn.col("why").isNull())
    return good.groupBy("batch", *_THINNED_BY).agg(fn.min("ts").alias("since"), fn.max("ts").alias("until"))


def finished_files(spark: SparkSession, directories: Sequence[str]) -> frozenset[InputFile]:
    """The files that agents have finished, by name; unfinished ones end in `.part`."""
    found = _finished_files(spark.read).load([files.literal_path(spark, directory) for directory in directories])
    rows = found.select("path", "length", fn.unix_micros("modificationTime")).collect()
    return frozenset(InputFile(*row) for row in rows)


def new_files_stream(spark: SparkSession, directories: Sequence[str]) -> DataFrame:
    """A stream with a row for each new file."""
    # A file that arrives is new, however old it is.
    reader = _finished_files(spark.readStream).schema(_LISTING).option("maxFileAge", "36500d")
    streams: list[DataFrame] = [reader.load(files.literal_path(spark, one)).select("path") for one in directories]
    return reduce(DataFrame.union, streams)


def _finished_files(reader: Any) -> Any:
    return reader.format("binaryFile").option("recursiveFileLookup", True).option("pathGlobFilter", _FINISHED)
