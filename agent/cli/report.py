"""`report`: the status export of a fleet as tables, by Spark."""

from __future__ import annotations

from collections.abc import Sequence

from agent.cli import output
from agent.cli.main import UsageError
from agent.errors import CannotStartError
from agent.pipeline.options import OptionError, parse


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
    told = report(options)
    lines = told["lines"]
    output.say(f"read {lines['read']} lines: {lines['bad']} bad, {lines['later_schema']} of a later schema")
    output.say(f"{told['links']} links, {told['incidents']} incidents in {told['outages']} outages of many links")
    output.say(f"tables and summary.json are in {options.output}")
