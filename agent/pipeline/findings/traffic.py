"""Messages: over time, from cluster to cluster, of moves, and how many are not accounted for."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.pipeline.findings import model
from agent.pipeline.findings.model import Percentiles
from agent.pipeline.findings.report_tables import LONGEST, ReportTables, shortened, time_columns, time_spent_of
from agent.pipeline.schema import CELL, LINK, SECOND, Bucket
from agent.pipeline.window import Bounds

MOST_STEPS: Final = 120
_MINUTE: Final = 60 * SECOND
_STEPS: Final = tuple(_MINUTE * minutes for minutes in (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080))
_COUNTS: Final = ("messages", "bytes", "redelivered", "dropped", "quarantined", "returned")


def step_length(length: int) -> int:
    """The finest round step with which the window fits on a chart."""
    return next(
        (step for step in _STEPS if length <= MOST_STEPS * step), -(-length // (MOST_STEPS * _STEPS[-1])) * _STEPS[-1]
    )


def traffic(tables: ReportTables) -> model.Traffic:
    step = step_length(tables.within.end - tables.within.start)
    rows = tables.traffic().withColumn("start_of_step", fn.expr(f"unix_micros(start) div {step} * {step}"))
    sums = (fn.coalesce(fn.sum(name), fn.lit(0)).alias(name) for name in _COUNTS)
    every = rows.agg(*sums, *_percentiles()).collect()[0]
    by_step = rows.groupBy("start_of_step").agg(fn.sum("messages").alias("messages"), *_percentiles())
    steps = (
        model.TrafficStep(row["start_of_step"], row["messages"] or 0, *_percentiles_of(row))
        for row in by_step.orderBy("start_of_step").collect()
    )
    counts = model.MessageCounts(**{name: every[name] for name in _COUNTS})
    return model.Traffic(step, counts, *_percentiles_of(every), tuple(steps))


def _percentiles() -> list[Column]:
    """Transfer times of each link's five minutes are weighted by their messages; of lag, each link's peak counts
    once."""
    transfer = fn.array(*(_weighted(f"transfer_{part}_seconds") for part in ("p50", "p95", "p99")))
    return [transfer.alias("transfer"), fn.percentile("peak_backlog", [0.5, 0.95, 0.99]).alias("lag")]


def _percentiles_of(row: Any) -> tuple[Percentiles, Percentiles]:
    """Of transfer times, and of lag."""
    return Percentiles(*row["transfer"]), Percentiles(*(row["lag"] or ()))


def _weighted(name: str) -> Column:
    """Decimals, because their sum is the same in any order."""
    known = fn.when(fn.col(name).isNotNull() & (fn.col("messages") > 0), fn.col("messages"))
    product = fn.col(name).cast("decimal(18,9)") * known
    return fn.try_divide(fn.sum(product).cast("double"), fn.sum(known).cast("double"))


_ENDS = ("upstream_cluster", "cluster")


def edges(tables: ReportTables, *, most: int) -> model.ClusterEdges:
    """The busiest pairs; among equals those with most links first."""
    ends = [shortened(name) for name in _ENDS]
    times = tables.availability("day").select(*ends, *LINK, *(f"{bucket}_seconds" for bucket in Bucket))
    times = times.groupBy(*_ENDS).agg(fn.count_distinct(*LINK).alias("links"), *time_columns())
    moved = tables.traffic().select(*ends, "messages").groupBy(*_ENDS).agg(fn.sum("messages").alias("messages"))
    same = [times[name].eqNullSafe(moved[name]) for name in _ENDS]
    joined = (
        times.join(moved, same, "left")
        .select(*(times[name] for name in times.columns), fn.coalesce(moved["messages"], fn.lit(0)).alias("messages"))
        .withColumn("pairs", fn.count(fn.lit(1)).over(Window.partitionBy()))
    )
    ordered = joined.orderBy(fn.col("messages").desc(), fn.col("links").desc(), *_ENDS).limit(most).collect()
    found = (
        model.ClusterEdge(row["upstream_cluster"], row["cluster"], row["links"], row["messages"], time_spent_of(row))
        for row in ordered
    )
    return model.ClusterEdges(ordered[0]["pairs"] if ordered else 0, tuple(found))


_SUMS: Final = ("taken", "entered", "expired", "repeated", "unexplained", "unexplained_upstream")


def account(tables: ReportTables) -> model.MessageAccount:
    """Too many in one place don't make up for those missing in another: both are unexplained."""
    unexplained = fn.coalesce(fn.abs("unexplained_upstream"), fn.lit(0)) + fn.coalesce("uncounted", fn.lit(0))
    by_link = tables.account().groupBy(*LINK).agg(
        *(_sum_or_0(fn.col(name)).alias(name) for name in ("taken", "entered", "expired", "repeated")),
        _sum_or_0(fn.abs("unexplained")).alias("unexplained"),
        _sum_or_0(unexplained).alias("unexplained_upstream"),
        (fn.count("unexplained") < fn.count(fn.lit(1))).alias("partly"),
        (fn.count("entered") > 0).alias("compared"),
    )  # fmt: skip
    row = by_link.agg(
        *(_sum_or_0(fn.col(name)).alias(name) for name in _SUMS),
        fn.count_if(fn.col("unexplained") > 0).alias("unexplained_links"),
        fn.count_if(fn.col("unexplained_upstream") > 0).alias("unexplained_upstream_links"),
        fn.count_if("partly").alias("not_accounted_links"),
        fn.count_if("compared").alias("upstream_links"),
    ).collect()[0]
    return model.MessageAccount(**row.asDict())


def _sum_or_0(values: Column) -> Column:
    return fn.coalesce(fn.sum(values), fn.lit(0))


_MOVE: Final = ("group", "cluster", "source")
_ACCOUNTED: Final = ("taken", "dropped", "quarantined", "given_back", "in_doubt", "unexplained")
_MOST_LEFT: Final = 5


def moves(tables: ReportTables, *, most: int) -> tuple[model.ClusterMove, ...]:
    """Those in which most is left come first, then those that moved most."""
    queues = _moved_queues(tables).join(_accounts_of_links(tables), [*LINK], "left")
    queue = fn.struct((-fn.col("left")).alias("order"), "vhost", "queue")
    found = queues.groupBy(*_MOVE).agg(
        fn.count(fn.lit(1)).alias("queues"),
        *(_sum_or_0(fn.col(name)).alias(name) for name in ("moved", "left", *_ACCOUNTED)),
        fn.min("first").alias("first"),
        fn.max("last").alias("last"),
        fn.max("looked").alias("looked"),
        fn.count_if(fn.col("left") > 0).alias("left_queues"),
        fn.count_if(fn.col("left").isNull()).alias("unknown_queues"),
        fn.count_if(fn.coalesce("partly", fn.lit(True))).alias("not_accounted_queues"),
        fn.slice(fn.sort_array(fn.collect_list(fn.when(fn.col("left") > 0, queue))), 1, _MOST_LEFT).alias("most_left"),
    )
    end = tables.within.end
    return tuple(
        model.ClusterMove(
            row["group"], row["source"], row["cluster"], row["queues"], row["moved"],
            None if row["first"] is None else Bounds(max(row["first"], tables.within.start), min(row["last"], end)),
            row["left"], row["left_queues"], row["unknown_queues"],
            None if row["looked"] is None else min(row["looked"], end),
            tuple((one["vhost"], one["queue"], -one["order"]) for one in row["most_left"]),
            **{name: row[name] for name in (*_ACCOUNTED, "not_accounted_queues")},
        )
        for row in found.orderBy(fn.col("left").desc(), fn.col("moved").desc(), *_MOVE).limit(most).collect()
    )  # fmt: skip


def _moved_queues(tables: ReportTables) -> DataFrame:
    """A row for each link of a move; both ends' names are the last ones that were known."""
    start, moved = fn.unix_micros("start"), fn.col("messages") > 0

    def last(name: str) -> Column:
        return fn.max_by(fn.col(name), fn.when(fn.col(name).isNotNull(), fn.col("start")))

    by_link = tables.traffic().groupBy(*LINK).agg(
        *(fn.substring(last(name), 1, LONGEST).alias(name) for name in ("cluster", "vhost")),
        fn.substring(last("moves_from"), 1, LONGEST).alias("source"),
        fn.substring(last("upstream_name"), 1, LONGEST).alias("queue"),
        fn.sum("messages").alias("moved"),
        fn.min(fn.when(moved, start)).alias("first"),
        fn.max(fn.when(moved, start + CELL)).alias("last"),
        last("last_backlog").alias("left"),
        fn.max(fn.when(fn.col("last_backlog").isNotNull(), start + CELL)).alias("looked"),
    )  # fmt: skip
    return by_link.where(fn.col("source").isNotNull())


def _accounts_of_links(tables: ReportTables) -> DataFrame:
    return tables.account().groupBy(*LINK).agg(
        *(fn.sum(name).alias(name) for name in ("taken", "dropped", "quarantined", "given_back")),
        fn.max_by("in_flight_end", "start").alias("in_doubt"),
        fn.sum(fn.abs("unexplained")).alias("unexplained"),
        (fn.count("unexplained") < fn.count(fn.lit(1))).alias("partly"),
    )  # fmt: skip
