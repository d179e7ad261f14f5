"""One Spark for all tests: starting it takes longer than most of them."""

from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql import SparkSession

from agent.pipeline.spark import java_options

# Nothing runs long enough to be worth optimizing: a tenth of the CPU. Without the optimizer Java has room for 48 MB of
# compiled code, which some five reports fill; it then stops compiling, and the later ones are interpreted.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"

BRIEF: Final = "--conf spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"
"""For the command, whose one report fits into the 48 MB."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java_options()} {JAVA_OPTIONS}",
        # Of small tables, compiling costs more than what is compiled.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    running = builder.config(map=settings).getOrCreate()
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()
