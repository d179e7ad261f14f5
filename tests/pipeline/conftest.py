"""One Spark for all tests: starting it takes longer than most of them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from agent.pipeline.spark import java


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Nothing runs long enough to be worth optimizing: a tenth of the CPU.
        "spark.driver.extraJavaOptions": f"{java.options()} -XX:TieredStopAtLevel=1",
        # Of small tables, compiling costs more than what is compiled.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    running = builder.config(map=settings).getOrCreate()
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()
