"""What links' counters gained, by lines written by hand: through a file between thinning and the rest, as in a run."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from agent.pipeline.reading import parsing, thinning
from agent.pipeline.schema import KEPT_LINES, SECOND
from agent.pipeline.spark import settings_for_rows
from agent.pipeline.tables.traffic import cells
from agent.pipeline.window import Bounds, micros
from tests.pipeline.lines import START, write

WITHIN = Bounds(micros(START), micros(START) + 200 * SECOND)


def gains(spark: SparkSession, directory: Path, *lines: dict[str, Any]) -> DataFrame:
    """Without the file, Spark would derive what holds for every column from all steps at once, for minutes."""
    kept = str(directory / "kept")
    thinning.thin(parsing.read(spark, [str(write(directory, *lines))])).write.parquet(kept)
    return placed_gains(spark.read.schema(KEPT_LINES).parquet(kept), lines=len(lines))


def placed_gains(read: DataFrame, *, lines: int) -> DataFrame:
    with settings_for_rows(read.sparkSession, rows=lines) as keep:
        placed = keep(thinning.with_lives(read, thinning.lives(read, WITHIN)))
        return keep(cells(placed, WITHIN))
