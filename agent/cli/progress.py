"""The progress of a report on a terminal: the step, its tasks, and the elapsed time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PERIOD: Final = 0.25


@contextmanager
def shown(spark: SparkSession) -> Iterator[None]:
    """Removed from the screen when the work is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[tasks]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None, tasks="")

        def look() -> None:
            step, done, total = state(spark)
            told = f"{done} of {total} tasks" if total else ""
            progress.update(task, description=step, completed=done, total=total or None, tasks=told)

        with watching(look):
            yield


@contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Reads the progress regularly in its own thread, so that the work never waits."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(_PERIOD):
            look()

    follower = threading.Thread(target=follow, name="progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def state(spark: SparkSession) -> tuple[str, int, int]:
    """The current step, and how many of the tasks of its active stages are done."""
    from agent.pipeline.spark import STEPS

    tracker = spark.sparkContext.statusTracker()
    active = set(tracker.getActiveJobsIds())
    step = next((says for name, says in STEPS.items() if active & set(tracker.getJobIdsForGroup(name))), "working")
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
    return step, sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
