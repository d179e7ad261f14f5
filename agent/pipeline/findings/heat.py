"""Availability by period, for the worst pairs of clusters and the worst links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import LONGEST, Asked, flowing
from agent.pipeline.findings.model import Edge, Heat, HeatRow, LinkTime
from agent.pipeline.schema import LINK, SECOND
from agent.pipeline.spark import literal
from agent.pipeline.window import Bounds

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
    keys = literal.table(asked.spark, pairs, ", ".join(f"{name} string" for name in names))
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
