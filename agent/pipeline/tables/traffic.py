"""The traffic of a link in intervals of five minutes, from the increase of its counters. And the account of every
message that it took, by hour and by day, where what doesn't add up is a column of its own; if the upstream's HTTP API
is known, also of every message that entered the link's queue.
"""

from __future__ import annotations

import operator
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.pipeline.reading.thinning import measured
from agent.pipeline.schema import CELL, COUNTERS, LINK, REPORTER, SECOND, UPSTREAM_COUNTERS
from agent.pipeline.window import Bounds, by_hour_and_day, with_hour

_READING: Final = ("running", "blocked")
"""The states in which an agent knows what waits."""


def cells(lines: DataFrame, within: Bounds) -> DataFrame:
    """One row per link and five minutes: increases of counters, transfer times, peak and last backlog."""
    epochs = _epochs(lines)
    counted = _gains(epochs, within).groupBy(*LINK, "cell").agg(
        *(fn.sum(counter).alias(counter) for counter in COUNTERS),
        fn.sum("settling").alias("settling"),
        fn.every("accounted").alias("accounted"),
        fn.sum("growth").alias("growth"),
        fn.max_by("waiting", fn.when(fn.col("looks") > 0, fn.col("ts"))).alias("waiting"),
        fn.max("cell_backlog").alias("backlog"),
        _last("backlog", fn.col("status").isin(*_READING)).alias("last_backlog"),
        _last("moves_from", fn.col("moves_from").isNotNull()).alias("moves_from"),
    )  # fmt: skip
    opening = epochs.groupBy(*REPORTER).agg(_opening(within).alias("unsettled")).groupBy(*LINK)
    open_at_first = opening.agg(fn.sum("unsettled").alias("opening"))
    return counted.join(_transfers(epochs, within), [*LINK, "cell"], "left").join(open_at_first, [*LINK], "left")


def _epochs(lines: DataFrame) -> DataFrame:
    """Numbers the resets of a link's counters at an agent; `whole`: the epoch is known to start at 0."""
    ordered = Window.partitionBy(*REPORTER).orderBy("ts", "seq")
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
    ordered = Window.partitionBy(*REPORTER, "epoch").orderBy("ts", "seq")
    earlier = ordered.rowsBetween(Window.unboundedPreceding, -1)

    def gain(counter: str) -> Column:
        start = fn.when(fn.col("whole"), 0).otherwise(fn.col(counter))
        return fn.greatest(fn.col(counter) - fn.coalesce(fn.max(counter).over(earlier), start), fn.lit(0))

    # It may fall. Before the first value it is 0, or that value if the start of the agent wasn't seen.
    first = fn.when(~fn.col("whole"), fn.col("growth"))
    grown_before = fn.coalesce(fn.lag("growth").over(ordered), first, fn.lit(0))
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
        (_or_0("growth") - grown_before).alias("growth"),
        *("waiting", "seq", "agent", "status", "backlog", "moves_from"),
    )
    return gained.where(_inside(within))


def _last(name: str, condition: Column) -> Column:
    return fn.max_by(name, fn.when(condition, fn.struct("ts", "seq", "agent")))


def _unsettled_at_first() -> Column:
    """The number in flight before the first line of an agent on a link."""
    return fn.when(fn.col("whole"), 0).otherwise(_or_0("unsettled"))


def _or_0(gauge: str) -> Column:
    """The gauge, or 0: agents that don't count it have nothing in flight that is known: not what one before them
    had."""
    return fn.coalesce(gauge, fn.lit(0))


def _opening(within: Bounds) -> Column:
    """The number in flight when the period began, or, if its start was not seen, when an agent first reported."""
    order = fn.struct("ts", "seq")
    last_before = fn.max_by("unsettled", fn.when(fn.col("ts") <= within.start, order))
    return fn.coalesce(last_before, fn.min_by(_unsettled_at_first(), order), fn.lit(0))


def _inside(within: Bounds) -> Column:
    return (fn.col("ts") > within.start) & (fn.col("ts") <= within.end)


def _transfers(epochs: DataFrame, within: Bounds) -> DataFrame:
    """The number of transfers up to each bound, by cell; the last number is the total."""
    by_time = Window.partitionBy(*REPORTER, "epoch").orderBy("cell")
    order = fn.struct("ts", "seq")
    ends = epochs.where(measured()).groupBy(*REPORTER, "epoch", "cell").agg(
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
        *("last_backlog", "moves_from"),
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


_ENDS: Final = ("forwarded", "dropped", "quarantined", "given_back")
_COUNTED: Final = ("taken", *_ENDS)
_UPSTREAM: Final = ("entered", "acknowledged", "growth", "expired", "uncounted", "repeated", "unexplained_upstream")


def account(counted: DataFrame, hours: DataFrame, within: Bounds) -> DataFrame:
    """The account by hour and day in which a link was reported, from the gains of `cells`. Agents that don't
    count what they take leave nulls."""
    at = fn.greatest(fn.col("cell") * CELL, fn.lit(within.start))
    dated = with_hour(counted.withColumn("at", at), "at", hours)
    # Days are not complete in a window, and have 23 to 25 hours.
    days = hours.groupBy("day").agg(fn.min("hour_start").alias("day_start"), fn.max("hour_end").alias("day_end"))
    so_far = Window.partitionBy(*LINK).orderBy("hour_start")
    by_hour = (
        dated.groupBy(*LINK, "day", "hour_start", "hour_end")
        .agg(
            *(fn.sum(name).alias(name) for name in (*_COUNTED, *UPSTREAM_COUNTERS, "growth")),
            fn.coalesce(fn.sum("settling"), fn.lit(0)).alias("settling"),
            fn.every("accounted").alias("accounted"),
            fn.first("opening").alias("opening"),
            fn.max_by("waiting", fn.when(fn.col("waiting").isNotNull(), fn.col("cell"))).alias("waiting"),
        )
        .withColumn("in_flight_end", fn.col("opening") + fn.sum("settling").over(so_far))
        .withColumn("in_flight_start", fn.col("in_flight_end") - fn.col("settling"))
        .withColumns(_upstream_columns())
    )
    by_period = by_hour_and_day(by_hour).groupBy(*LINK, "day", "hour").agg(
        *(fn.sum(name).alias(name) for name in (*_COUNTED, *_UPSTREAM)),
        fn.every("accounted").alias("accounted"),
        fn.min_by("in_flight_start", "hour_start").alias("in_flight_start"),
        fn.max_by("in_flight_end", "hour_start").alias("in_flight_end"),
        fn.max_by("waiting", fn.when(fn.col("waiting").isNotNull(), fn.col("hour_start"))).alias("waiting"),
        fn.max("hour_end").alias("hour_end"),
    )  # fmt: skip
    return _account_rows(by_period.join(fn.broadcast(days), "day"))


def _upstream_columns() -> dict[str, Column]:
    """Columns of an hour, null where nothing could be compared in it. A later comparison counts in its own hour."""
    entered, acknowledged, settled = (fn.col(name) for name in ("entered", "acknowledged", "settled"))
    unacknowledged = entered - acknowledged - fn.col("growth")
    # What is settled here and not acknowledged there comes again: the broker says so of as many at most.
    repeated = fn.greatest(fn.least(settled - acknowledged, fn.col("settled_again")), fn.lit(0))
    values = {
        "expired": fn.greatest(unacknowledged, fn.lit(0)),
        "uncounted": fn.greatest(-unacknowledged, fn.lit(0)),
        "repeated": repeated,
        "unexplained_upstream": acknowledged - settled + repeated,
        **{name: fn.col(name) for name in ("entered", "acknowledged", "growth", "waiting")},
    }
    return {name: fn.when(fn.col("looks") > 0, value) for name, value in values.items()}


def with_other_consumers(accounts: DataFrame) -> DataFrame:
    """The accounts without what other consumers may change: the queue of a queue link has other consumers upstream, and
    what they acknowledge is none of the link's."""
    is_shared = fn.coalesce(fn.col("kind") == "queue", fn.lit(False))
    unknown = ("repeated", "unexplained_upstream")
    return accounts.withColumns({name: fn.when(~is_shared, fn.col(name)) for name in unknown})


def _account_rows(summed: DataFrame) -> DataFrame:
    is_day = fn.col("hour").isNull()
    explained = sum((fn.col(name) for name in _ENDS), fn.col("in_flight_end") - fn.col("in_flight_start"))

    def if_accounted(value: Column, name: str) -> Column:
        return fn.when(fn.col("accounted"), value).alias(name)

    return summed.select(
        *LINK,
        fn.when(is_day, "day").otherwise("hour").alias("period"),
        fn.timestamp_micros(fn.when(is_day, fn.col("day_start")).otherwise(fn.col("hour"))).alias("start"),
        fn.timestamp_micros(fn.when(is_day, fn.col("day_end")).otherwise(fn.col("hour_end"))).alias("end"),
        if_accounted(fn.col("taken"), "taken"),
        *("forwarded", "dropped", "quarantined"),
        *(if_accounted(fn.col(name), name) for name in ("given_back", "in_flight_start", "in_flight_end")),
        if_accounted(fn.col("taken") - explained, "unexplained"),
        *("entered", "acknowledged", "expired", "uncounted", "repeated"),
        (fn.col("waiting") - fn.col("growth")).alias("backlog_start"),
        fn.col("waiting").alias("backlog_end"),
        "unexplained_upstream",
        fn.col("day").alias("date"),
    )
