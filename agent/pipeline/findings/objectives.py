"""Objectives: how many links met them, and which did not."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.model import Objective, Promise, Promises
from agent.pipeline.findings.report_tables import Asked, named, which_of
from agent.pipeline.objectives import ALARMS
from agent.pipeline.schema import LINK
from agent.pipeline.tables.slo import BURNS


def promises(asked: Asked, *, most: int) -> Promises:
    rows = asked.slo()
    return Promises(_objectives(rows), _worst(rows, most=most))


def _objectives(rows: DataFrame) -> tuple[Objective, ...]:
    def whole(name: str) -> Column:
        return fn.sum(fn.col(name).cast("decimal(30,6)")).cast("double")

    total, bad = whole("total"), whole("bad")
    bad_share = fn.try_divide(bad, total)
    allowed = 1 - fn.col("target_percent") / 100
    found = (
        rows.groupBy("objective", "measured_by", "target_percent", "window_days")
        .agg(
            fn.count("consumed_percent").alias("links"),
            fn.count_if(fn.col("consumed_percent") <= 100).alias("met"),
            (100 - 100 * bad_share).alias("attained"),
            bad_share.alias("bad_share"),
            fn.count_if(_burning()).alias("burning"),
            fn.max("seen_days").alias("seen_days"),
            fn.avg("period_consumed_percent").alias("of_period"),
        )
        .withColumn("consumed", 100 * fn.col("bad_share") / allowed)
        .orderBy("objective")
    )
    return tuple(_objective(row) for row in found.collect())


def _burning() -> Column:
    first, *rest = [(fn.col(f"burn_{long}") > rate) & (fn.col(f"burn_{short}") > rate) for long, short, rate in ALARMS]
    for alarm in rest:
        first = first | alarm
    return fn.coalesce(first, fn.lit(False))


def _objective(row: Any) -> Objective:
    return Objective(
        row["objective"], row["measured_by"], row["target_percent"], row["window_days"], row["links"], row["met"],
        row["attained"], row["consumed"], row["burning"], row["seen_days"] or 0.0, row["of_period"],
    )  # fmt: skip


def _worst(rows: DataFrame, *, most: int) -> tuple[Promise, ...]:
    columns = ("objective", "target_percent", "attained_percent", "consumed_percent")
    burns = [f"burn_{name}" for name in BURNS]
    found = (
        rows.where("consumed_percent > 0")
        .select(*named(), *columns, *burns)
        .orderBy(fn.col("consumed_percent").desc(), *LINK, "objective")
        .limit(most)
    )
    return tuple(
        Promise(
            which_of(row), row["objective"], row["target_percent"], row["attained_percent"], row["consumed_percent"],
            {name: row[f"burn_{name}"] for name in BURNS},
        )
        for row in found.collect()
    )  # fmt: skip
