"""Runs several Spark actions at a time: while one is planned, another can work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession


def side_by_side(spark: SparkSession, *works: Callable[[], Any]) -> list[Any]:
    """The results of all; raises the first error after all have ended."""
    with ThreadPoolExecutor(len(works), thread_name_prefix="report") as threads:
        # Each inherits its own copy: Spark's properties for the step of one must not be visible to the others.
        begun = [threads.submit(inheritable_thread_target(spark)(work)) for work in works]
    return [one.result() for one in begun]
