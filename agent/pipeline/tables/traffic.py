"""The traffic of a link in intervals of five minutes, from the increase of its counters."""

from __future__ import annotations

import operator

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as fn

from agent.pipeline.reading.thinning import measured
from agent.pipeline.schema import CELL, COUNTERS, LINK, SECOND
from agent.pipeline.window import Bounds, with_hour

_REPORTER = ("group", "link", "agent")


def cells(lines: DataFrame, within: Bounds) -> DataFrame:
    """One row per link and five minutes: increases of counters, transfer times, peak backlog."""
    epochs = _epochs(lines)
    counted = _gains(epochs, within).groupBy(*LINK, "cell").agg(
        *(fn.sum(counter).alias(counter) for counter in COUNTERS),
        fn.sum("settling").alias("settling"),
        fn.every("accounted").alias("accounted"),
        fn.sum("growth").alias("growth"),
        fn.max_by("waiting", fn.when(fn.col("looks") > 0, fn.col("ts"))).alias("waiting"),
        fn.max("cell_backlog").alias("backlog"),
    )  # fmt: skip
    opening = epochs.groupBy(*_REPORTER).agg(_opening(within).alias("unsettled")).groupBy(*LINK)
    open_at_first = opening.agg(fn.sum("unsettled").alias("opening"))
    return counted.join(_transfers(epochs, within), [*LINK, "cell"], "left").join(open_at_first, [*LINK], "left")


def _epochs(lines: DataFrame) -> DataFrame:
    """Numbers the resets of a link's counters at an agent; `whole`: the epoch is known to start at 0."""
    ordered = Window.partitionBy(*_REPORTER).orderBy("ts", "seq")
    before = fn.col("before")
    fell = fn.greatest(*(before[counter] - fn.col(counter) for counter in COUNTERS)) > 0
    # If a clock is set back, lines of one life are out of order; then `seq` falls too, and it is not a reset.
    goes_on = fn.coalesce(fn.col("life") == before["life"], fn.lit(False))
    # A running agent doesn't begin to count more than before: this is another one, whose start is lost.
    updated = fn.col("unsettled").isNull() != before["unsettled"].isNull()
    anew = (fn.col("run") != before["run"]) | updated | (fell & ~(goes_on & (fn.col("seq") <= before["seq"])))
    return (
        lines.withColumn("before", fn.lag(fn.struct("run", "life", "seq", "unsettled", *COUNTERS)).over(ordered))
        .withColumn("epoch", fn.sum(fn.coalesce(anew, fn.lit(False)).cast("int")).over(ordered))
        .withColumn("whole", (fn.col("epoch") > 0) | (fn.coalesce("run", fn.lit(0)) > 0))
        .withColumn("unsettled_before", before["unsettled"])
        .drop("before")
    )


def _gains(epochs: DataFrame, within: Bounds) -> DataFrame:
    ordered = Window.partitionBy(*_REPORTER, "epoch").orderBy("ts", "seq")
    earlier = ordered.rowsBetween(Window.unboundedPreceding, -1)

    def gain(counter: str) -> Column:
        start = fn.when(fn.col("whole"), 0).otherwise(fn.col(counter))
        return fn.greatest(fn.col(counter) - fn.coalesce(fn.max(counter).over(earlier), start), fn.lit(0))

    # What was in flight when an agent died went back to its source: no other line shows that.
    left = fn.when(fn.col("begins"), fn.coalesce("unsettled_before", fn.lit(0))).otherwise(0)
    begins = (fn.col("epoch") > 0) & (fn.row_number().over(ordered) == 1)
    gained = epochs.withColumn("begins", begins).select(
        *LINK,
        "ts",
        "cell",
        "cell_backlog",
        *(gain(counter).alias(counter) for counter in COUNTERS if counter != "given_back"),
        (gain("given_back") + left).alias("given_back"),
        (_or_0("unsettled") - fn.coalesce("unsettled_before", _unsettled_at_first())).alias("settling"),
        fn.col("unsettled").isNotNull().alias("accounted"),
        (_or_0("growth") - _before_or_0("growth", ordered)).alias("growth"),
        "waiting",
    )
    return gained.where(_inside(within))


def _unsettled_at_first() -> Column:
    """The number in flight before the first line of an agent on a link."""
    return fn.when(fn.col("whole"), 0).otherwise(_or_0("unsettled"))


def _or_0(gauge: str) -> Column:
    """The gauge, or 0: agents that don't count it have nothing in flight that is known: not what one before them
    had."""
    return fn.coalesce(gauge, fn.lit(0))


def _before_or_0(change: str, ordered: WindowSpec) -> Column:
    """The previous value of a number that may fall. Without one, 0, or the first reported value of an agent whose start
    wasn't seen."""
    return fn.coalesce(fn.lag(change).over(ordered), fn.when(~fn.col("whole"), fn.col(change)), fn.lit(0))


def _opening(within: Bounds) -> Column:
    """The number in flight when the period began, or, if its start was not seen, when an agent first reported."""
    order = fn.struct("ts", "seq")
    last_before = fn.max_by("unsettled", fn.when(fn.col("ts") <= within.start, order))
    return fn.coalesce(last_before, fn.min_by(_unsettled_at_first(), order), fn.lit(0))


def _inside(within: Bounds) -> Column:
    return (fn.col("ts") > within.start) & (fn.col("ts") <= within.end)


def _transfers(epochs: DataFrame, within: Bounds) -> DataFrame:
    """The number of transfers up to each bound, by cell; the last number is the total."""
    by_time = Window.partitionBy(*_REPORTER, "epoch").orderBy("cell")
    order = fn.struct("ts", "seq")
    ends = epochs.where(measured()).groupBy(*_REPORTER, "epoch", "cell").agg(
        fn.max("ts").alias("ts"),
        fn.max("whole").alias("whole"),
        fn.max_by("transfer", order).alias("transfer"),
        fn.min_by("transfer", order).alias("first"),
    ).withColumn("before", fn.lag("transfer").over(by_time))  # fmt: skip
    base = fn.coalesce("before", fn.when(~fn.col("whole"), fn.col("first")))
    comparable = fn.when(base["le"] == fn.col("transfer")["le"], base["count"])
    gained = fn.when(
        comparable.isNotNull(),
        fn.zip_with("transfer.count", comparable, lambda now, then: fn.greatest(now - then, fn.lit(0))),
    ).otherwise(fn.col("transfer")["count"])
    le, counts = fn.col("transfer")["le"].alias("le"), gained.alias("counts")
    gains = ends.where(_inside(within)).select(*LINK, "cell", le, counts)
    together = gains.groupBy(*LINK, "cell", "le").agg(fn.collect_list("counts").alias("all"))
    summed = fn.reduce(
        fn.slice("all", 2, fn.size("all")), fn.col("all")[0], lambda one, other: fn.zip_with(one, other, operator.add)
    )
    # If agents of one link use different bounds, the finer ones are used for all.
    finest = fn.struct(fn.size("le"), "le")
    by_cell = together.withColumn("counts", summed).groupBy(*LINK, "cell")
    return by_cell.agg(*(fn.max_by(name, finest).alias(name) for name in ("le", "counts")))


def traffic(found: DataFrame, links: DataFrame, hours: DataFrame, within: Bounds) -> DataFrame:
    start = fn.col("cell") * CELL
    covered = fn.least(start + CELL, fn.lit(within.end)) - fn.greatest(start, fn.lit(within.start))
    named = found.join(links, [*LINK], "left").withColumn("start", fn.greatest(start, fn.lit(within.start)))
    return with_hour(named, "start", hours).select(
        *links.columns,
        fn.timestamp_micros(start).alias("start"),
        fn.col("forwarded").alias("messages"),
        "bytes",
        (fn.col("forwarded") * float(SECOND) / covered).alias("rate"),
        *("redelivered", "dropped", "quarantined", "returned"),
        *(_quantile(part).alias(f"transfer_p{round(part * 100)}_seconds") for part in (0.5, 0.95, 0.99)),
        fn.col("le").alias("transfer_le"),
        fn.col("counts").alias("transfer_counts"),
        fn.col("backlog").alias("peak_backlog"),
        fn.col("day").alias("date"),
    )


def _quantile(part: float) -> Column:
    """Interpolated linearly between two bounds; the last bound for values beyond it."""
    return fn.expr(f"""
        case when element_at(counts, -1) > 0 then (
            transform(
                array(filter(sequence(0, size(counts) - 1), i -> counts[i] >= {part!r}D * element_at(counts, -1))[0]),
                i -> case
                    when i >= size(le) then element_at(le, -1)
                    when i = 0 then le[0] * ({part!r}D * element_at(counts, -1)) / counts[0]
                    else le[i - 1] + (le[i] - le[i - 1])
                        * ({part!r}D * element_at(counts, -1) - counts[i - 1]) / (counts[i] - counts[i - 1])
                end
            )[0]
        ) end
    """)
