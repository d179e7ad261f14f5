"""Whether every message that links took is accounted for, and every one that entered their queues upstream."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import Asked
from agent.pipeline.findings.model import Account
from agent.pipeline.schema import LINK

_SUMS: Final = ("taken", "entered", "expired", "repeated", "unexplained", "unexplained_upstream")


def account(asked: Asked) -> Account:
    """What is too much in one place doesn't make up for what is missing in another: both are unexplained."""
    strange = fn.coalesce(fn.abs("unexplained_upstream"), fn.lit(0)) + fn.coalesce("uncounted", fn.lit(0))
    by_link = asked.account().groupBy(*LINK).agg(
        *(_sum(fn.col(name)).alias(name) for name in ("taken", "entered", "expired", "repeated")),
        _sum(fn.abs("unexplained")).alias("unexplained"),
        _sum(strange).alias("unexplained_upstream"),
        (fn.count("unexplained") < fn.count(fn.lit(1))).alias("partly"),
        (fn.count("entered") > 0).alias("compared"),
    )  # fmt: skip
    row = by_link.agg(
        *(_sum(fn.col(name)).alias(name) for name in _SUMS),
        fn.count_if(fn.col("unexplained") > 0).alias("unexplained_links"),
        fn.count_if(fn.col("unexplained_upstream") > 0).alias("unexplained_upstream_links"),
        fn.count_if("partly").alias("not_accounted_links"),
        fn.count_if("compared").alias("upstream_links"),
    ).collect()[0]
    return Account(**row.asDict())


def _sum(values: Column) -> Column:
    return fn.coalesce(fn.sum(values), fn.lit(0))
