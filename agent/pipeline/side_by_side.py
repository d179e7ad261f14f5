"""Several things asked of Spark at a time: planning one of them leaves time for the work of another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession


def side_by_side(spark: SparkSession, *works: Callable[[], Any]) -> list[Any]:
    """What each of them answers; the first error once all have ended."""
    inheriting = inheritable_thread_target(spark)
    with ThreadPoolExecutor(len(works), thread_name_prefix="report") as threads:
        begun = [threads.submit(inheriting(work)) for work in works]
    return [one.result() for one in begun]
