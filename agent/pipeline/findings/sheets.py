"""`availability.csv` and `incidents.csv`: the window's rows of these tables, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from agent.pipeline.findings.asked import Asked
from agent.pipeline.schema import LINK
from agent.pipeline.spark import files

AVAILABILITY: Final = "availability.csv"
INCIDENTS: Final = "incidents.csv"
_A_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_ROWS: Final = 5_000


def write_sheets(asked: Asked) -> None:
    days = asked.availability("day").drop("period").orderBy("date", *LINK)
    _write(asked, AVAILABILITY, days)
    _write(asked, INCIDENTS, asked.incidents().orderBy("start", *LINK))


def _write(asked: Asked, name: str, rows: DataFrame) -> None:
    """Times are RFC 3339 in UTC, as in the tables."""
    shown = rows.select(*(_shown(field, kind) for field, kind in rows.dtypes))
    files.write_parts(asked.spark, f"{asked.output}/{name}", _lines(shown))


def _shown(name: str, kind: str) -> Column:
    if kind == "timestamp":
        return fn.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias(name)
    return fn.col(f"`{name}`").cast("string").alias(name)


def _lines(rows: DataFrame) -> Iterator[str]:
    """A part at a time, however many rows there are."""
    part = io.StringIO()
    writer = csv.writer(part)
    writer.writerow(rows.columns)
    for number, row in enumerate(rows.toLocalIterator(), 1):
        writer.writerow(_harmless(value) for value in row)
        if number % _ROWS == 0:
            yield part.getvalue()
            part.seek(0)
            part.truncate()
    yield part.getvalue()


def _harmless(value: str | None) -> str | None:
    """Names come from outside, and a spreadsheet would run one that begins like a formula."""
    return f"'{value}" if value and value.startswith(_A_FORMULA) else value
