"""Whether every message that links took is accounted for."""

from __future__ import annotations

from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import Asked
from agent.pipeline.findings.model import Account
from agent.pipeline.schema import LINK


def account(asked: Asked) -> Account:
    """What is too much in one place doesn't make up for what is missing in another: both are unexplained."""
    unexplained = fn.coalesce(fn.sum(fn.abs("unexplained")), fn.lit(0))
    by_link = asked.account().groupBy(*LINK).agg(
        fn.coalesce(fn.sum("taken"), fn.lit(0)).alias("taken"),
        unexplained.alias("unexplained"),
        (fn.count("unexplained") < fn.count(fn.lit(1))).alias("partly"),
    )  # fmt: skip
    row = by_link.agg(
        fn.coalesce(fn.sum("taken"), fn.lit(0)).alias("taken"),
        unexplained.alias("unexplained"),
        fn.count_if(fn.col("unexplained") > 0).alias("unexplained_links"),
        fn.count_if("partly").alias("not_accounted_links"),
    ).collect()[0]
    return Account(**row.asDict())
