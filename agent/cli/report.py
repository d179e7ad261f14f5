"""`report`: turns the status exports of agents into tables, with Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from agent.cli import output
from agent.errors import CannotStartError, UsageError
from agent.pipeline.options import OptionError, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_report(arguments: Sequence[str]) -> None:
    try:
        options = parse(arguments)
    except OptionError as error:
        raise UsageError(str(error)) from error
    try:
        from agent.pipeline.job import report
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise CannotStartError(
            "report needs Spark, which is not installed: pip install 'federation-agent[report]'"
        ) from error
    told = report(options, watch=_watch())
    if options.format == "json":
        output.say_json(told)
        return
    lines = told["lines"]
    output.say(f"read {lines['read']} lines: {lines['bad']} bad, {lines['later_schema']} of a later schema")
    output.say(f"{told['links']} links, {told['incidents']} incidents in {told['outages']} outages of many links")
    output.say(f"tables, report.html and summary.json are in {options.output}")


def _watch() -> Callable[[SparkSession], AbstractContextManager[object]]:
    """Shows progress on a terminal; programs and logs get none."""
    if not sys.stderr.isatty():
        return nullcontext
    from agent.cli.progress import shown

    return shown
