"""Time of links in each bucket: all together, by group of agents, the worst of them, in each part of the window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from agent.pipeline.findings.model import Edge, Fleet, GroupTime, Heat, HeatRow, LagTime, LinkTime, Slot, Spent, Strip
from agent.pipeline.findings.report_tables import LONGEST, Asked, flowing, spent, spent_of, which, which_of
from agent.pipeline.schema import LINK, SECOND, Bucket
from agent.pipeline.spark import literal_table
from agent.pipeline.window import Bounds


def fleet(asked: Asked) -> Fleet:
    within = asked.within
    before = Bounds(2 * within.start - within.end, within.start)
    rows = asked.available_in(Bounds(before.start, within.end), "hour").withColumn(
        "now", fn.unix_micros("start") >= within.start
    )
    of_links = rows.groupBy("now", *LINK).agg(*spent(), _lag_critical())
    sums = of_links.groupBy("now").agg(
        fn.count(fn.lit(1)).alias("links"),
        *(fn.sum(bucket.value).alias(bucket.value) for bucket in Bucket),
        fn.sum("lag_critical").alias("lag_critical"),
        fn.count_if(fn.col("lag_critical") > 0).alias("lag_links"),
        fn.count("lag_critical").alias("known_links"),
    )
    found = {row["now"]: row for row in sums.collect()}
    now, previous = found.get(True), found.get(False)
    return Fleet(
        now["links"] if now else 0,
        spent_of(now) if now else Spent(),
        spent_of(previous) if previous else None,
        previous["links"] if previous else 0,
        LagTime(_seconds_or_none(now["lag_critical"]), now["lag_links"], now["known_links"]) if now else LagTime(),
    )


def worst(asked: Asked, *, most: int) -> tuple[LinkTime, ...]:
    """The least available first; then those whose lag was critical for longest, and those with the least coverage."""
    lag = fn.col("lag_critical").desc_nulls_last()
    rows = by_link(asked).orderBy(fn.col("share").asc_nulls_last(), lag, fn.col("unknown").desc(), *LINK).limit(most)
    return tuple(map(time_of, rows.collect()))


def by_link(asked: Asked) -> DataFrame:
    """A row for each link; `share` is its availability."""
    share = fn.try_divide(fn.sum("up_seconds").cast("double"), flowing().cast("double"))
    found = asked.availability("day").groupBy(*LINK)
    return found.agg(*which(), *spent(), _lag_critical(), fn.sum("incidents").alias("incidents"), share.alias("share"))


def time_of(row: Any) -> LinkTime:
    return LinkTime(which_of(row), spent_of(row), row["incidents"] or 0, _seconds_or_none(row["lag_critical"]))


def _lag_critical() -> Column:
    """Null if that is unknown."""
    return fn.sum("lag_critical_seconds").alias("lag_critical")


def _seconds_or_none(value: Decimal | None) -> float | None:
    return None if value is None else float(value)


OF_EACH: Final = 5


def groups(asked: Asked, *, most: int) -> tuple[GroupTime, ...]:
    """The least available group first."""
    share = fn.try_divide(fn.sum("up_seconds").cast("double"), flowing().cast("double"))
    days = asked.availability("day").groupBy("group")
    moved = asked.traffic().groupBy(fn.col("group").alias("of")).agg(fn.sum("messages").alias("messages"))
    found = days.agg(
        fn.count_distinct("link").alias("links"), *spent(), fn.sum("incidents").alias("incidents"), share.alias("share")
    )
    same = fn.col("group").eqNullSafe(fn.col("of"))
    rows = found.join(moved, same, "left").orderBy(fn.col("share").asc_nulls_last(), "group").limit(most).collect()
    worst = _worst_of_groups(asked, {row["group"] for row in rows}) if len(rows) > 1 else {}
    return tuple(
        GroupTime(
            row["group"],
            row["links"],
            spent_of(row),
            row["incidents"] or 0,
            row["messages"] or 0,
            worst.get(row["group"], ()),
        )
        for row in rows
    )


def _worst_of_groups(asked: Asked, groups: Collection[str | None]) -> Mapping[str | None, tuple[LinkTime, ...]]:
    """Of each group the least available links, of those that weren't fully available or whose lag was critical."""
    in_order = Window.partitionBy("group").orderBy("share", fn.col("lag_critical").desc_nulls_last(), *LINK)
    worse = (fn.col("share") < 1) | (fn.coalesce("lag_critical", fn.lit(0)) > 0)
    ranked = by_link(asked).where(_is_in(groups) & worse).withColumn("rank", fn.row_number().over(in_order))
    found: dict[str | None, list[LinkTime]] = defaultdict(list)
    for row in ranked.where(fn.col("rank") <= OF_EACH).orderBy("rank").collect():
        found[row["group"]].append(time_of(row))
    return {group: tuple(links) for group, links in found.items()}


def _is_in(groups: Collection[str | None]) -> Column:
    named = fn.col("group").isin([group for group in groups if group is not None])
    return fn.coalesce(named, fn.lit(None in groups))


def strips(asked: Asked, links: Sequence[LinkTime], *, slots: int) -> tuple[Strip, ...]:
    if not links:
        return ()
    within = asked.within
    length = within.end - within.start
    drawn = literal_table(
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


COLUMNS: Final = 31
TOUCHED: Final = 100  # a hundredth of a period
_HOUR: Final = 3600 * SECOND
_UNITS: Final = {"hour": _HOUR, "day": 24 * _HOUR, "week": 7 * 24 * _HOUR, "month": 30 * 24 * _HOUR}

_YEAR: Final = 365 * 24 * _HOUR


def unit(length: int) -> str:
    """The finest unit whose columns fit."""
    return next((name for name, one in _UNITS.items() if length < (COLUMNS + 1) * one), "year")


def heat_of_edges(asked: Asked, edges: Sequence[Edge]) -> Heat:
    """Pairs in the given order."""
    table, period = _by_period(asked)
    labels = [fn.substring(name, 1, LONGEST).alias(name) for name in ("upstream_cluster", "cluster")]
    rows = table.select(*labels, *_counted(period))
    wanted = [(edge.source, edge.target) for edge in edges]
    return _heat(asked, rows, ("upstream_cluster", "cluster"), wanted, wanted)


def heat_of_links(asked: Asked, links: Sequence[LinkTime]) -> Heat:
    table, period = _by_period(asked)
    named = [link.which for link in links]
    labels = [(which.name, which.upstream_cluster or which.upstream, which.cluster) for which in named]
    return _heat(asked, table.select(*LINK, *_counted(period)), LINK, [which.key for which in named], labels)


def drawn(known: Mapping[int, bool], within: Bounds, length: int) -> tuple[int, ...]:
    """The periods in order, by whether anything is known of them. A first or last one that the window only touches, and
    of which nothing is known, is no column: a clock that is a second off would add a day.
    """

    def matters(period: int) -> bool:
        inside = min(period + length, within.end) - max(period, within.start)
        return known[period] or inside * TOUCHED >= length

    periods = sorted(known)
    edges = {period for period in (*periods[:1], *periods[-1:]) if not matters(period)}
    return tuple(period for period in periods if period not in edges)


def _by_period(asked: Asked) -> tuple[DataFrame, Column]:
    """`date` is a day of the report's time zone, so longer periods begin at the zone's boundaries."""
    of = unit(asked.within.end - asked.within.start)
    if of == "hour":
        return asked.availability("hour"), fn.unix_micros("start")
    local = fn.date_trunc(of, fn.col("date"))
    return asked.availability("day"), fn.unix_micros(fn.to_utc_timestamp(local, str(asked.zone)))


def _counted(period: Column) -> list[Column]:
    return [period.alias("period"), *map(fn.col, ("up_seconds", "degraded_seconds", "down_seconds"))]


def _heat(
    asked: Asked,
    rows: DataFrame,
    by: Sequence[str],
    wanted: Sequence[tuple[Any, ...]],
    labels: Sequence[tuple[str | None, ...]],
) -> Heat:
    of, by_unit = ("links" if by == LINK else "edges"), unit(asked.within.end - asked.within.start)
    if not wanted:
        return Heat(of, by_unit, (), ())
    names = [f"wanted_{name}" for name in by]
    pairs = [dict(zip(names, key, strict=True)) for key in wanted]
    keys = literal_table(asked.spark, pairs, ", ".join(f"{name} string" for name in names))
    same = [rows[name].eqNullSafe(keys[f"wanted_{name}"]) for name in by]
    percent = 100.0 * fn.try_divide(fn.sum("up_seconds").cast("double"), flowing().cast("double"))
    found = rows.join(fn.broadcast(keys), same, "left_semi").groupBy(*by, "period").agg(percent.alias("percent"))
    cells: dict[tuple[Any, ...], dict[int, float | None]] = {}
    for row in found.collect():
        cells.setdefault(tuple(row[name] for name in by), {})[row["period"]] = row["percent"]
    known: dict[int, bool] = {}
    for of_row in cells.values():
        for period, value in of_row.items():
            known[period] = known.get(period, False) or value is not None
    return Heat(
        of,
        by_unit,
        drawn(known, asked.within, _UNITS.get(by_unit, _YEAR)),
        tuple(HeatRow(label, cells.get(key, {})) for key, label in zip(wanted, labels, strict=True)),
    )
