"""One run of the report: reads new files, and makes the tables from all lines that were ever read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from pyspark.sql import SparkSession

from agent.pipeline import before
from agent.pipeline.findings.asked import Asked
from agent.pipeline.findings.publishing import PAGE, SUMMARY, publish
from agent.pipeline.findings.sheets import AVAILABILITY, INCIDENTS
from agent.pipeline.options import Options
from agent.pipeline.reading.ledger import TablesMade
from agent.pipeline.reading.store import Store
from agent.pipeline.schema import TABLES, VERSION
from agent.pipeline.spark import files
from agent.pipeline.spark.effort import suited_to
from agent.pipeline.tables import periods
from agent.pipeline.tables.dates import Dates
from agent.pipeline.tables.every import write_tables
from agent.pipeline.tables.extent import extent
from agent.pipeline.tables.objectives import USUAL, Objective, parse_objectives
from agent.pipeline.tables.periods import micros
from agent.pipeline.versions import Versions
from agent.pipeline.window import bounds

STORE: Final = "_lines"


def run(spark: SparkSession, options: Options) -> dict[str, Any]:
    """Updates the tables, `report.html` and `summary.json`, and returns the summary."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    said = None if options.objectives is None else files.read_text(spark, options.objectives)
    promised = parse_objectives(said, source=str(options.objectives)) if said is not None else USUAL
    versions = _versions(spark, options)
    if versions is not None:
        versions.open()
    store = Store(spark, f"{options.output}/{STORE}", options.inputs)
    store.catch_up()
    read, made_of = store.ledger.content(), _fingerprint(options, promised)
    within = bounds(read.first, read.last, start=_given(options.start), end=_given(options.end))
    if not _exists(spark, options):
        store.record(None)
    if store.ledger.has(made_of):
        return dict(json.loads(files.read_small(spark, f"{options.output}/{SUMMARY}") or "{}"))
    asked = Dates() if options.is_whole else Dates(*periods.days(within, options.zone))
    of = extent(store.ledger, made_of, within, zone=options.zone, asked=asked)
    store.record(TablesMade(made_of, within.start, within.end, touched=of.since, whole=False))
    counts = {"read": read.read, "bad": read.bad, "later_schema": read.later_schema}
    with suited_to(spark, rows=store.ledger.lines_since(of.since)) as keep:
        draft = options if versions is None else replace(options, output=f"{options.output}/{versions.begin(TABLES)}")
        write_tables(store, draft, promised, of, keep)
        asked_of = Asked(spark, draft.output, within, options.zone, options.chosen)
        summed = publish(asked_of, counts, csv=options.csv, run=None if versions is None else versions.run)
        if versions is not None:
            versions.show()
        store.record(TablesMade(made_of, within.start, within.end))
        store.settle()
        store.compact()
    return summed


def _versions(spark: SparkSession, options: Options) -> Versions | None:
    """Object stores have neither links nor renames: there tables are replaced one by one."""
    directory = before.local(options.output)
    if directory is None or not files.is_local(spark, options.output):
        return None
    return Versions(directory, (*TABLES, PAGE, SUMMARY, AVAILABILITY, INCIDENTS), keep=options.keep)


def _exists(spark: SparkSession, options: Options) -> bool:
    """Whether the outputs still exist."""
    sheets = (AVAILABILITY, INCIDENTS) if options.csv else ()
    return all(files.exists(spark, f"{options.output}/{name}") for name in (*TABLES, PAGE, SUMMARY, *sheets))


def _fingerprint(options: Options, promised: Sequence[Objective]) -> str:
    """A fingerprint of everything except lines that tables are made from."""
    asked = (VERSION, options.start, options.end, str(options.zone), options.merge_gap, options.chosen, *promised)
    return repr(asked)


def _given(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)
