"""Keeps the report up to date as files arrive: Structured Streaming triggers a step, and the store knows what is
new."""

from __future__ import annotations

from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from agent.errors import AgentError
from agent.pipeline.options import Options
from agent.pipeline.reading.inputs import followed
from agent.pipeline.reading.store import Store
from agent.pipeline.run import STORE, run

CHECKPOINT: Final = "_checkpoint"


def follow(spark: SparkSession, options: Options) -> dict[str, Any]:
    """Ends when all existing files have been read, if `every` is None; otherwise never. An interrupted step is
    repeated, and files that are in the ledger are not read again.
    """
    # Data from other directories is discarded together with the checkpoint beside it.
    Store(spark, f"{options.output}/{STORE}", options.inputs)
    failed: list[AgentError] = []

    def step(_: DataFrame, __: int) -> None:
        try:
            run(spark, options)
        except AgentError as error:
            failed.append(error)
            raise

    writer = followed(spark, options.inputs).writeStream.foreachBatch(step).queryName("federation-agent report")
    writer = writer.option("checkpointLocation", f"{options.output}/{STORE}/{CHECKPOINT}")
    if options.every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{options.every.total_seconds():g} seconds")
    try:
        writer.start().awaitTermination()
    except StreamingQueryException:
        if failed:
            raise failed[0] from None
        raise
    return run(spark, options)
