"""Several things asked of Spark at a time: planning one of them leaves time for the work of another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession


def side_by_side(spark: SparkSession, *works: Callable[[], Any]) -> list[Any]:
    """What each of them answers; the first error once all have ended."""
    with ThreadPoolExecutor(len(works), thread_name_prefix="report") as threads:
        # Each inherits a copy of its own: what Spark notes of the step of one is not to be seen by the others.
        begun = [threads.submit(inheritable_thread_target(spark)(work)) for work in works]
    return [one.result() for one in begun]
