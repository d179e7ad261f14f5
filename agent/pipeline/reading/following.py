"""The report kept up to date while files come: Structured Streaming tells when, and the store knows what is new."""

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
    """Ends when all that is there has been read, if `every` is none; else never by itself.

    A step that was cut off is done again, and what of it is in the ledger is not read again.
    """
    # What was read of other trees is forgotten together with the checkpoint, which lies beside it.
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
