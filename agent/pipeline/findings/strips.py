"""The status of some links in each slot of the window: only as many values as are drawn."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Window
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import Asked
from agent.pipeline.findings.model import LinkTime, Slot, Spent, Strip
from agent.pipeline.schema import LINK, SECOND, Bucket
from agent.pipeline.spark import literal


def strips(asked: Asked, links: Sequence[LinkTime], *, slots: int) -> tuple[Strip, ...]:
    if not links:
        return ()
    within = asked.within
    length = within.end - within.start
    drawn = literal.table(
        asked.spark, [dict(zip(LINK, link.which.key, strict=True)) for link in links], "`group` string, link string"
    )
    began = fn.unix_micros("start")
    # An interval of an earlier report may overlap with those of this one, which are newer and win.
    own = fn.min(fn.when(began >= within.start, began)).over(Window.partitionBy(*LINK))
    start = fn.greatest(began, fn.lit(within.start))
    end = fn.least(fn.unix_micros("end"), fn.lit(within.end), fn.when(began < within.start, own))
    spans = asked.intervals().join(fn.broadcast(drawn), [*LINK], "left_semi")
    spans = spans.select(*LINK, "bucket", start.alias("begin"), end.alias("until")).where("begin < until")
    first, last = (f"({at} - {within.start}) * {slots} div {length}" for at in ("begin", "until - 1"))
    numbers = fn.expr(f"sequence({first}, {last})")
    slot_start = within.start + fn.expr(f"slot * {length} div {slots}")
    slot_end = within.start + fn.expr(f"(slot + 1) * {length} div {slots}")
    part = fn.least("until", slot_end) - fn.greatest("begin", slot_start)
    rows = (
        spans.withColumn("slot", fn.explode(numbers))
        .groupBy(*LINK, "slot", "bucket")
        .agg(fn.sum(part).alias("part"))
        .collect()
    )
    found: dict[tuple[str, str], dict[int, dict[Bucket, float]]] = {}
    for row in rows:
        of_link = found.setdefault((row["group"], row["link"]), {})
        of_link.setdefault(row["slot"], {})[Bucket(row["bucket"])] = row["part"] / SECOND
    return tuple(Strip(link.which, _slots(found.get(link.which.key, {}))) for link in links)  # type: ignore[arg-type]


def _slots(found: dict[int, dict[Bucket, float]]) -> tuple[Slot, ...]:
    return tuple(Slot(number, Spent(seconds)) for number, seconds in sorted(found.items()))
