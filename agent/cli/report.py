"""`report`: turns the status exports of agents into tables, with Spark, and shows its progress on a terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from agent.cli import output
from agent.core.text import counted
from agent.errors import CannotStartError, UsageError
from agent.pipeline.options import OptionError, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REFRESH: Final = 0.25  # seconds
_SPARK: Final = {"pyspark", "py4j"}  # installed together


def make_report(arguments: Sequence[str]) -> None:
    try:
        options = parse(arguments)
    except OptionError as error:
        raise UsageError(str(error)) from error
    try:
        from agent.pipeline.job import report
    except ModuleNotFoundError as error:
        if error.name not in _SPARK:
            raise
        raise CannotStartError(
            "report needs Spark, which is not installed: the image of the target `report` has it; elsewhere install "
            "locks/report.lock of the checkout, as docs/install.md shows"
        ) from error
    _end_at_once()
    summary = report(options, watch=_watch)
    if options.format == "json":
        output.say_json(summary)
        return
    for line in in_short(summary):
        output.say(line)
    output.say(f"tables, report.html and summary.json are in {options.output}")


def in_short(summary: Mapping[str, Any]) -> Iterator[str]:
    read, bad, later = (summary["lines"][each] for each in ("read", "bad", "later_schema"))
    incidents, outages = counted(summary["incidents"], "incident"), counted(summary["outages"], "outage")
    yield f"read {counted(read, 'line')}: {bad:,} bad, {later:,} of a later schema"
    yield f"{counted(summary['links'], 'link')}, {incidents} in {outages} of many links"


def _end_at_once() -> None:
    """A report may be killed anywhere, so a signal ends it in one line: to unwind, Spark's jobs would have to end."""

    # While Spark starts, its own messages go elsewhere, and so does all standard error.
    shown = os.dup(2)

    def end(number: int, _: object) -> None:
        os.write(shown, f"federation-agent: report: ended by {signal.Signals(number).name}\n".encode())
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


@contextmanager
def _watch(spark: SparkSession) -> Iterator[None]:
    """Shows the step, its tasks and the elapsed time on a terminal, until all is done; programs and logs get none."""
    _end_at_once()  # again, since Spark replaces the handler of an interrupt when it starts
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[tasks]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None, tasks="")

        def look() -> None:
            step, done, total = progress_of(spark)
            tasks = f"{done} of {total} tasks" if total else ""
            progress.update(task, description=step, completed=done, total=total or None, tasks=tasks)

        with watching(look):
            yield


@contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Reads the progress regularly in its own thread, so that the work never waits."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(_REFRESH):
            look()

    follower = threading.Thread(target=follow, name="progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def progress_of(spark: SparkSession) -> tuple[str, int, int]:
    """The current step, and how many of the tasks of its active stages are done."""
    from agent.pipeline.spark import STEPS

    tracker = spark.sparkContext.statusTracker()
    active = set(tracker.getActiveJobsIds())
    step = next((words for name, words in STEPS.items() if active & set(tracker.getJobIdsForGroup(name))), "working")
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
    return step, sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
