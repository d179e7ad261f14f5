"""Objectives: how many links met them, and which did not."""

from __future__ import annotations

import operator
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.model import BudgetUse, ObjectiveResult, ObjectiveResults
from agent.pipeline.findings.report_tables import ReportTables, identity_columns, identity_of
from agent.pipeline.objectives import ALARMS
from agent.pipeline.schema import LINK
from agent.pipeline.tables.slo import BURNS


def objective_results(tables: ReportTables, *, most: int) -> ObjectiveResults:
    rows = tables.slo()
    return ObjectiveResults(_results(rows), _worst_budgets(rows, most=most))


def _results(rows: DataFrame) -> tuple[ObjectiveResult, ...]:
    def whole(name: str) -> Column:
        return fn.sum(fn.col(name).cast("decimal(30,6)")).cast("double")

    bad_share = fn.try_divide(whole("bad"), whole("total"))
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
    return tuple(
        ObjectiveResult(
            row["objective"], row["measured_by"], row["target_percent"], row["window_days"], row["links"], row["met"],
            row["attained"], row["consumed"], row["burning"], row["seen_days"] or 0.0, row["of_period"],
        )
        for row in found.collect()
    )  # fmt: skip


def _burning() -> Column:
    above = ((fn.col(f"burn_{long}") > rate) & (fn.col(f"burn_{short}") > rate) for long, short, rate in ALARMS)
    return fn.coalesce(reduce(operator.or_, above), fn.lit(False))


def _worst_budgets(rows: DataFrame, *, most: int) -> tuple[BudgetUse, ...]:
    columns = ("objective", "target_percent", "attained_percent", "consumed_percent")
    burns = [f"burn_{name}" for name in BURNS]
    found = (
        rows.where("consumed_percent > 0")
        .select(*identity_columns(), *columns, *burns)
        .orderBy(fn.col("consumed_percent").desc(), *LINK, "objective")
        .limit(most)
    )
    return tuple(
        BudgetUse(
            identity_of(row), row["objective"], row["target_percent"], row["attained_percent"], row["consumed_percent"],
            {name: row[f"burn_{name}"] for name in BURNS},
        )
        for row in found.collect()
    )  # fmt: skip
