"""Work that is asked of Spark at a time."""

from threading import Barrier

import pytest
from pyspark.sql import SparkSession

from agent.pipeline.spark.side_by_side import side_by_side
from agent.pipeline.spark.steps import begin

pytestmark = pytest.mark.timeout(600)  # Spark on a busy machine


def test_each_has_its_own_step(spark: SparkSession) -> None:
    """Whatever Spark notes of one thread: the step, and the settings that its tasks get."""
    both = Barrier(2, timeout=60)

    def work(step: str) -> str | None:
        both.wait()
        begin(spark, step)
        both.wait()
        return spark.sparkContext.getLocalProperty("spark.jobGroup.id")

    assert side_by_side(spark, lambda: work("traffic"), lambda: work("intervals")) == ["traffic", "intervals"]
