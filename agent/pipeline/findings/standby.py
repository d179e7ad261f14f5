"""The standby of each group: for how long it was in step, when it wasn't for longest and why, and promotions."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from agent.core.export_event import StandbyVerdict
from agent.pipeline.findings.model import StandbyTime
from agent.pipeline.findings.report_tables import LONGEST, ReportTables, shortened
from agent.pipeline.schema import SECOND
from agent.pipeline.window import Bounds

_PROMOTIONS: Final = 5  # how many are listed
_IN_STEP, _OUT, _PROMOTED = (
    StandbyVerdict.IN_STEP.value,
    StandbyVerdict.NOT_IN_STEP.value,
    StandbyVerdict.PROMOTED.value,
)


def standbys(tables: ReportTables, *, most: int) -> tuple[StandbyTime, ...]:
    """Those that were out of step for longest first."""
    begin, until = fn.greatest(fn.unix_micros("start"), fn.lit(tables.within.start)), fn.unix_micros("end")
    before = fn.lag("status").over(Window.partitionBy("group").orderBy("start"))
    rows = tables.standby().withColumns(
        {
            "begin": begin,
            "until": fn.least(until, fn.lit(tables.within.end)),
            # One that is seen promoted after a time without lines was so before, for all that is known.
            "is_promotion": (fn.col("status") == _PROMOTED) & before.isin(_IN_STEP, _OUT),
        }
    )
    lasted = fn.col("until") - fn.col("begin")
    is_out = fn.col("status") == _OUT
    found = rows.groupBy("group").agg(
        fn.max(fn.substring("upstream", 1, LONGEST)).alias("upstream"),
        *(fn.sum(fn.when(fn.col("status") == each, lasted).otherwise(0)).alias(each.value) for each in StandbyVerdict),
        fn.max_by(fn.struct("begin", "until", shortened("error")), fn.when(is_out, lasted)).alias("longest"),
        fn.sort_array(fn.collect_list(fn.when(fn.col("is_promotion"), fn.col("begin")))).alias("promotions"),
    )
    return tuple(
        StandbyTime(
            row["group"],
            row["upstream"],
            in_step=row[_IN_STEP] / SECOND,
            not_in_step=row[_OUT] / SECOND,
            promoted=row[_PROMOTED] / SECOND,
            longest=Bounds(row["longest"]["begin"], row["longest"]["until"]) if row[_OUT] else None,
            error=row["longest"]["error"] if row[_OUT] else None,
            promotions=tuple(row["promotions"][-_PROMOTIONS:]),
            promotion_count=len(row["promotions"]),
        )
        for row in found.orderBy(fn.col(_OUT).desc(), "group").limit(most).collect()
    )
