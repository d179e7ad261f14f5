"""The report as a whole, once: reads what is new, and makes the tables of all that was ever read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from pyspark.sql import SparkSession

from agent.pipeline import files
from agent.pipeline.effort import suited_to
from agent.pipeline.objectives import USUAL, Objective, parse_objectives
from agent.pipeline.options import Options
from agent.pipeline.periods import micros
from agent.pipeline.publishing import PAGE, SUMMARY, publish
from agent.pipeline.schema import TABLES, VERSION
from agent.pipeline.store import Store
from agent.pipeline.tables import write_tables
from agent.pipeline.window import bounds

STORE: Final = "_lines"


def run(spark: SparkSession, options: Options) -> dict[str, Any]:
    """Brings the tables, `report.html` and `summary.json` up to date, and answers what is in the latter."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    said = None if options.objectives is None else files.read_text(spark, options.objectives)
    promised = parse_objectives(said, source=str(options.objectives)) if said is not None else USUAL
    store = Store(spark, f"{options.output}/{STORE}", options.inputs)
    store.catch_up()
    made_of = _fingerprint(options, promised)
    if store.ledger.tables == made_of and _stands(spark, options.output):
        return dict(json.loads(files.read_small(spark, f"{options.output}/{SUMMARY}") or "{}"))
    store.finished(None)
    read = store.ledger.content()
    within = bounds(read.first, read.last, start=_given(options.start), end=_given(options.end))
    counts = {"read": read.read, "bad": read.bad, "later_schema": read.later_schema}
    with suited_to(spark, rows=read.kept):
        write_tables(store.lines(), options, promised, within)
        summed = publish(spark, options.output, within, options.zone, counts)
    store.finished(made_of)
    return summed


def _stands(spark: SparkSession, output: str) -> bool:
    """Nobody has removed what was made."""
    return all(files.exists(spark, f"{output}/{name}") for name in (*TABLES, PAGE, SUMMARY))


def _fingerprint(options: Options, promised: Sequence[Objective]) -> str:
    """Of all but the lines that tables are made of."""
    asked = (VERSION, options.start, options.end, str(options.zone), options.merge_gap, *promised)
    return repr(asked)


def _given(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)
