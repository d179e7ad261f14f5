"""`report`: turns the status exports of agents into tables, with Spark."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from agent.cli import output
from agent.core.text.quantities import counted
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
            "report needs Spark, which is not installed: the image of the target `report` has it; elsewhere install "
            "locks/report.lock of the checkout, as docs/install.md shows"
        ) from error
    _end_at_once()
    told = report(options, watch=_watch())
    if options.format == "json":
        output.say_json(told)
        return
    for line in in_short(told):
        output.say(line)
    output.say(f"tables, report.html and summary.json are in {options.output}")


def in_short(told: Mapping[str, Any]) -> Iterator[str]:
    read, bad, later = (told["lines"][each] for each in ("read", "bad", "later_schema"))
    incidents, outages = counted(told["incidents"], "incident"), counted(told["outages"], "outage")
    yield f"read {counted(read, 'line')}: {bad:,} bad, {later:,} of a later schema"
    yield f"{counted(told['links'], 'link')}, {incidents} in {outages} of many links"


def _end_at_once() -> None:
    """A report may be killed anywhere, so a signal ends it in one line: to unwind, Spark's jobs would have to end."""

    # While Spark starts, its own messages go elsewhere, and so does all standard error.
    shown = os.dup(2)

    def end(number: int, _: object) -> None:
        os.write(shown, f"federation-agent: report: ended by {signal.Signals(number).name}\n".encode())
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _watch() -> Callable[[SparkSession], AbstractContextManager[object]]:
    """Shows progress on a terminal; programs and logs get none."""
    if not sys.stderr.isatty():
        return _quietly
    from agent.cli.progress import shown

    @contextmanager
    def watched(spark: SparkSession) -> Iterator[None]:
        with _quietly(spark), shown(spark):
            yield

    return watched


@contextmanager
def _quietly(_: SparkSession) -> Iterator[None]:
    """Spark replaces the handler of an interrupt when it starts."""
    _end_at_once()
    yield
