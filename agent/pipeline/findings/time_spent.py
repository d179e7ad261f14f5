"""Time of links in each bucket: all together, by group of agents, the worst of them, and in each part of the window.
Also how many of them met their objectives. And the standby of each group: for how long it was in step, when it
wasn't for longest and why, and promotions.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.core.export_event import StandbyVerdict
from agent.pipeline.findings import model, report_tables
from agent.pipeline.findings.model import LagTime, LinkTime, StandbyTime, TimeSpent
from agent.pipeline.findings.report_tables import LONGEST, ReportTables, shortened
from agent.pipeline.objectives import ALARMS
from agent.pipeline.schema import LINK, SECOND, Bucket
from agent.pipeline.spark import literal_table
from agent.pipeline.tables.availability import BURNS, availability_share
from agent.pipeline.window import Bounds

WORST_OF_GROUP: Final = 5


def fleet(tables: ReportTables) -> model.Fleet:
    """The time of all links together, and the same for the period of the same length before."""
    within = tables.within
    before = Bounds(2 * within.start - within.end, within.start)
    rows = tables.availability("hour", within=Bounds(before.start, within.end))
    is_now = (fn.unix_micros("start") >= within.start).alias("now")
    lag_critical = fn.sum("lag_critical_seconds").alias("lag_critical")
    of_links = rows.groupBy(is_now, *LINK).agg(*report_tables.time_columns(), lag_critical)
    sums = of_links.groupBy("now").agg(
        fn.count(fn.lit(1)).alias("links"),
        *(fn.sum(bucket.value).alias(bucket.value) for bucket in Bucket),
        fn.sum("lag_critical").cast("double").alias("lag_critical"),
        fn.count_if(fn.col("lag_critical") > 0).alias("lag_links"),
        fn.count("lag_critical").alias("known_links"),
    )
    found = {row["now"]: row for row in sums.collect()}
    now, previous = found.get(True), found.get(False)
    return model.Fleet(
        now["links"] if now else 0,
        report_tables.time_spent_of(now) if now else TimeSpent(),
        report_tables.time_spent_of(previous) if previous else None,
        previous["links"] if previous else 0,
        LagTime(now["lag_critical"], now["lag_links"], now["known_links"]) if now else LagTime(),
    )


def worst_links(tables: ReportTables, *, most: int) -> tuple[LinkTime, ...]:
    """The worst links: the least available first; then those whose lag was critical for longest, and those with the
    least coverage."""
    lag = fn.col("lag_critical").desc_nulls_last()
    rows = _by_link(tables).orderBy(fn.col("share").asc_nulls_last(), lag, fn.col("unknown").desc(), *LINK).limit(most)
    return tuple(map(_link_time, rows.collect()))


def groups(tables: ReportTables, *, most: int) -> tuple[model.GroupTime, ...]:
    """The groups, the least available first."""
    moved = tables.traffic().groupBy("group").agg(fn.sum("messages").alias("messages"))
    found = tables.availability("day").groupBy("group").agg(
        fn.count_distinct("link").alias("links"), *report_tables.time_columns(), fn.sum("incidents").alias("incidents"),
        availability_share().alias("share"),
    )  # fmt: skip
    rows = found.join(moved, "group", "left").orderBy(fn.col("share").asc_nulls_last(), "group").limit(most).collect()
    worst = _worst_of_groups(tables, {row["group"] for row in rows}) if len(rows) > 1 else {}
    return tuple(
        model.GroupTime(
            row["group"], row["links"], report_tables.time_spent_of(row), row["incidents"] or 0, row["messages"] or 0,
            worst.get(row["group"], ()),
        )
        for row in rows
    )  # fmt: skip


def _worst_of_groups(tables: ReportTables, names: Collection[str]) -> dict[str, tuple[LinkTime, ...]]:
    """The least available links of each group, of those that weren't fully available or whose lag was critical."""
    in_order = Window.partitionBy("group").orderBy("share", fn.col("lag_critical").desc_nulls_last(), *LINK)
    worse = (fn.col("share") < 1) | (fn.coalesce("lag_critical", fn.lit(0)) > 0)
    chosen = _by_link(tables).where(fn.col("group").isin([*names]) & worse)
    ranked = chosen.withColumn("rank", fn.row_number().over(in_order))
    found: dict[str, list[LinkTime]] = defaultdict(list)
    for row in ranked.where(fn.col("rank") <= WORST_OF_GROUP).orderBy("rank").collect():
        found[row["group"]].append(_link_time(row))
    return {group: tuple(links) for group, links in found.items()}


def _by_link(tables: ReportTables) -> DataFrame:
    """A row for each link; `share` is its availability."""
    return tables.availability("day").groupBy(*LINK).agg(
        *report_tables.identity_aggregates(), *report_tables.time_columns(),
        fn.sum("lag_critical_seconds").cast("double").alias("lag_critical"),
        fn.sum("incidents").alias("incidents"), availability_share().alias("share"),
    )  # fmt: skip


def _link_time(row: Any) -> LinkTime:
    identity, spent = report_tables.identity_of(row), report_tables.time_spent_of(row)
    return LinkTime(identity, spent, row["incidents"] or 0, row["lag_critical"])


def timelines(
    tables: ReportTables, links: Sequence[LinkTime], *, slots: int
) -> dict[model.LinkIdentity, dict[int, TimeSpent]]:
    """The status of these links in each slot of the window: only as many values as are drawn."""
    if not links:
        return {}
    within = tables.within
    length = within.end - within.start
    keys = [dict(zip(LINK, link.identity.key, strict=True)) for link in links]
    wanted = literal_table(tables.spark, keys, "`group` string, link string")
    began = fn.unix_micros("start")
    # An interval of an earlier report may overlap with those of this one, which are newer and win.
    own = fn.min(fn.when(began >= within.start, began)).over(Window.partitionBy(*LINK))
    start = fn.greatest(began, fn.lit(within.start))
    end = fn.least(fn.unix_micros("end"), fn.lit(within.end), fn.when(began < within.start, own))
    spans = tables.intervals().join(fn.broadcast(wanted), [*LINK], "left_semi")
    spans = spans.select(*LINK, "bucket", start.alias("begin"), end.alias("until")).where("begin < until")
    first, last = (f"({at} - {within.start}) * {slots} div {length}" for at in ("begin", "until - 1"))
    numbers = fn.expr(f"sequence({first}, {last})")
    slot_start = within.start + fn.expr(f"slot * {length} div {slots}")
    slot_end = within.start + fn.expr(f"(slot + 1) * {length} div {slots}")
    part = fn.least("until", slot_end) - fn.greatest("begin", slot_start)
    sums = (
        spans.withColumn("slot", fn.explode(numbers)).groupBy(*LINK, "slot", "bucket").agg(fn.sum(part).alias("part"))
    )
    found: dict[Any, dict[int, dict[Bucket, float]]] = {}
    for row in sums.collect():
        of_link = found.setdefault((row["group"], row["link"]), {})
        of_link.setdefault(row["slot"], {})[Bucket(row["bucket"])] = row["part"] / SECOND
    return {
        link.identity: {slot: TimeSpent(seconds) for slot, seconds in sorted(found.get(link.identity.key, {}).items())}
        for link in links
    }


COLUMNS: Final = 31
TOUCHED: Final = 100  # a hundredth of a period
_HOUR: Final = 3600 * SECOND
_UNITS: Final = {"hour": _HOUR, "day": 24 * _HOUR, "week": 7 * 24 * _HOUR, "month": 30 * 24 * _HOUR}
_YEAR: Final = 365 * 24 * _HOUR


def unit(length: int) -> str:
    """The finest unit whose columns fit."""
    return next((name for name, one in _UNITS.items() if length < (COLUMNS + 1) * one), "year")


def heat_map_of_edges(tables: ReportTables, edges: Sequence[model.ClusterEdge]) -> model.HeatMap:
    """Pairs of clusters in the given order."""
    ends = ("upstream_cluster", "cluster")
    wanted = [(edge.source, edge.target) for edge in edges]
    return _heat_map(tables, ends, [report_tables.shortened(name) for name in ends], wanted, wanted)


def heat_map_of_links(tables: ReportTables, links: Sequence[LinkTime]) -> model.HeatMap:
    labels = [
        (one.name, one.upstream_cluster or one.upstream, one.cluster) for one in (link.identity for link in links)
    ]
    return _heat_map(tables, LINK, [fn.col(name) for name in LINK], [link.identity.key for link in links], labels)


def shown_periods(known: Mapping[int, bool], within: Bounds, length: int) -> tuple[int, ...]:
    """The periods in order; `known` maps each to whether anything is known of it. A first or last one that the window
    only touches, and of which nothing is known, is no column: a clock that is a second off would add a day.
    """

    def matters(period: int) -> bool:
        inside = min(period + length, within.end) - max(period, within.start)
        return known[period] or inside * TOUCHED >= length

    periods = sorted(known)
    edges = {period for period in (*periods[:1], *periods[-1:]) if not matters(period)}
    return tuple(period for period in periods if period not in edges)


def _heat_map(
    tables: ReportTables,
    by: Sequence[str],
    columns: Sequence[Column],
    wanted: Sequence[tuple[Any, ...]],
    labels: Sequence[tuple[str | None, ...]],
) -> model.HeatMap:
    """A row for each wanted value of `by`, which are these columns."""
    kind, by_unit = ("links" if by == LINK else "edges"), unit(tables.within.end - tables.within.start)
    if not wanted:
        return model.HeatMap(kind, by_unit, (), ())
    available, period = _by_period(tables, by_unit)
    times = map(fn.col, ("up_seconds", "degraded_seconds", "down_seconds"))
    rows = available.select(*columns, period.alias("period"), *times)
    names = [f"wanted_{name}" for name in by]
    pairs = [dict(zip(names, key, strict=True)) for key in wanted]
    keys = literal_table(tables.spark, pairs, ", ".join(f"{name} string" for name in names))
    same = [rows[name].eqNullSafe(keys[f"wanted_{name}"]) for name in by]
    percent = (100.0 * availability_share()).alias("percent")
    found = rows.join(fn.broadcast(keys), same, "left_semi").groupBy(*by, "period").agg(percent)
    cells: dict[tuple[Any, ...], dict[int, float | None]] = defaultdict(dict)
    known: dict[int, bool] = defaultdict(bool)
    for row in found.collect():
        cells[tuple(row[name] for name in by)][row["period"]] = row["percent"]
        known[row["period"]] |= row["percent"] is not None
    shown = shown_periods(known, tables.within, _UNITS.get(by_unit, _YEAR))
    heat_rows = (model.HeatRow(label, cells.get(key, {})) for key, label in zip(wanted, labels, strict=True))
    return model.HeatMap(kind, by_unit, shown, tuple(heat_rows))


def _by_period(tables: ReportTables, by_unit: str) -> tuple[DataFrame, Column]:
    """`date` is a day of the report's time zone, so longer periods begin at the zone's boundaries."""
    if by_unit == "hour":
        return tables.availability("hour"), fn.unix_micros("start")
    local = fn.date_trunc(by_unit, fn.col("date"))
    return tables.availability("day"), fn.unix_micros(fn.to_utc_timestamp(local, str(tables.zone)))


def objectives(tables: ReportTables) -> tuple[model.ObjectiveResult, ...]:
    by = (fn.col("objective").alias("name"), "measured_by", "target_percent", fn.col("window_days").alias("days"))

    def whole(name: str) -> Column:
        return fn.sum(fn.col(name).cast("decimal(30,6)")).cast("double")

    bad_share = fn.try_divide(whole("bad"), whole("total"))
    allowed = 1 - fn.col("target_percent") / 100
    found = tables.slo().groupBy(*by).agg(
        fn.count("consumed_percent").alias("links"),
        fn.count_if(fn.col("consumed_percent") <= 100).alias("links_met"),
        fn.count_if(_burning()).alias("links_burning"),
        (100 - 100 * bad_share).alias("attained_percent"),
        (100 * bad_share / allowed).alias("consumed_percent"),
        fn.coalesce(fn.max("seen_days"), fn.lit(0.0)).alias("seen_days"),
        fn.avg("period_consumed_percent").alias("period_consumed_percent"),
    )  # fmt: skip
    return tuple(model.ObjectiveResult(**row.asDict()) for row in found.orderBy("name").collect())


def _burning() -> Column:
    above = ((fn.col(f"burn_{long}") > rate) & (fn.col(f"burn_{short}") > rate) for long, short, rate in ALARMS)
    return fn.coalesce(reduce(operator.or_, above), fn.lit(False))


def worst_budgets(tables: ReportTables, *, most: int) -> tuple[model.BudgetUse, ...]:
    columns = ("objective", "target_percent", "attained_percent", "consumed_percent")
    burns = [f"burn_{name}" for name in BURNS]
    found = tables.slo().where("consumed_percent > 0").select(*report_tables.identity_columns(), *columns, *burns)
    in_order = found.orderBy(fn.col("consumed_percent").desc(), *LINK, "objective").limit(most)
    return tuple(
        model.BudgetUse(
            report_tables.identity_of(row), row["objective"], row["target_percent"], row["attained_percent"],
            row["consumed_percent"], {name: row[f"burn_{name}"] for name in BURNS},
        )
        for row in in_order.collect()
    )  # fmt: skip


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
