"""One Spark for all tests: starting it takes longer than most of them."""

from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql import SparkSession

from agent.pipeline.spark import java_options
from tests.pipeline import test_findings
from tests.pipeline.reports import ODD, Report, report_of
from tests.pipeline.tables import test_account, test_intervals, test_traffic, test_update

# Nothing runs long enough to be worth optimizing: a tenth of the CPU. Without the optimizer Java has room for 48 MB of
# compiled code, which some five reports fill; it then stops compiling, and the later ones are interpreted.
# Nor are Spark's own classes verified.
JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

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


@pytest.fixture(scope="session")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One report of all lines that are told by hand, each test in its own groups: questions take less time."""
    scenes = (test_update, test_findings, test_intervals, test_account, test_traffic)
    lines = [one for scene in scenes for one in scene.told_by_hand()]
    directory = tmp_path_factory.mktemp("told") / ODD
    return report_of(spark, directory, lines, test_update.BAD, shown=test_findings.ON_PAGE)
