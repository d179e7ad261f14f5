"""The report's use of Spark: its Java, its settings for an amount of work, and the steps that it shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from agent.pipeline.schema import TABLES

Cache = Callable[[DataFrame], DataFrame]
"""Keeps data that is used several times."""

READ: Final = "read"
PUBLISH: Final = "publish"
SETTLE: Final = "settle"
COMPACT: Final = "compact"
STEPS: Final = {
    READ: "reading the lines",
    **{name: f"making {name}" for name in TABLES},
    PUBLISH: "writing the report",
    SETTLE: "keeping what later reports need",
    COMPACT: "making few files of many",
}
"""Shown by Spark's own pages, and as the progress on a terminal."""


def begin_step(spark: SparkSession, step: str) -> None:
    """Assigns everything that Spark does from now on to that step."""
    spark.sparkContext.setJobGroup(step, STEPS[step])


def session(master: str | None) -> SparkSession:
    builder = SparkSession.builder.appName("federation-agent report").config("spark.ui.showConsoleProgress", False)
    builder = builder.config("spark.driver.defaultJavaOptions", java_options())
    spark = (builder if master is None else builder.master(master)).getOrCreate()
    context = spark.sparkContext
    if not context.getConf().contains("spark.sql.shuffle.partitions"):
        # Spark's default of 200 suits a large cluster; on a small machine they cost more than the work in them.
        spark.conf.set("spark.sql.shuffle.partitions", 8 * context.defaultParallelism)
    # A table is listed some twenty times in a run, each time all its dates.
    spark.conf.set(_DIRECTORIES_LISTED_AT_ONCE, "10000" if _runs_in_this_process(spark) else "128")
    return spark


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps what Java and Spark print away from the report's own lines. A Java that is started inside writes its
    standard error to a file without a name; it is shown if starting fails, because then it has the reason."""
    sys.stderr.flush()
    own = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(own, 2)
            aside.seek(0)
            with os.fdopen(os.dup(own), "wb") as shown:
                shutil.copyfileobj(aside, shown)
            raise
        finally:
            os.dup2(own, 2)
            os.close(own)


OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_TIMEOUT: Final = 10.0
_LONGEST_MESSAGE: Final = 300
_OPTIONS: Final = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC")
_LESS_OPTIMIZATION: Final = (
    "-XX:Tier4InvocationThreshold=75000 -XX:Tier4MinInvocationThreshold=9000 -XX:Tier4CompileThreshold=225000 "
    "-XX:Tier4BackEdgeThreshold=600000 -XX:FreqInlineSize=100 -XX:InlineSmallCode=800"
)
"""In a job of a minute, half the CPU would be spent on optimizing planning code that doesn't run again; only code that
processes lines is worth it, and less of it at a time."""
_REMEDY: Final = (
    f"Spark needs Java {OLDEST_JAVA} or later: install it, on Debian openjdk-17-jre-headless, or set JAVA_HOME"
)


def java_options() -> str:
    """The options before an operator's own; Java does not start with two garbage collectors."""
    return _LESS_OPTIMIZATION if _is_collector_chosen() else f"-XX:+UseParallelGC {_LESS_OPTIMIZATION}"


def _is_collector_chosen() -> bool:
    home, configured = os.environ.get("SPARK_HOME"), os.environ.get("SPARK_CONF_DIR")
    directories = [configured] if configured else [f"{home}/conf"] if home else []
    defaults = (Path(directory, "spark-defaults.conf") for directory in directories)
    texts = [os.environ.get(name, "") for name in _OPTIONS]
    texts += [file.read_text(errors="replace") for file in defaults if file.is_file()]
    return any(_COLLECTOR.search(text) for text in texts)


def java_problem() -> str:
    """Explains in a sentence why Spark did not start, and what to do; Java is examined only after that failure."""
    home = os.environ.get("JAVA_HOME")
    # Searched for in the same way as Spark does.
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")  # noqa: PTH118 - it is a name to show
    if java is None:
        return f"Java is not installed; {_REMEDY}"
    version, output = _java_version(java)
    if version is None and output:
        return f"{java} does not run: {output}; fix that, for example a limit of memory (ulimit -v)"
    if version is None:
        return f"{java} does not run; {_REMEDY}"
    if version < OLDEST_JAVA:
        return f"{java} is Java {version}, which is too old; {_REMEDY}"
    return f"Spark can't start with {java}, which is Java {version}: see its output above"


def _java_version(java: str) -> tuple[int | None, str]:
    """The version, or None and the output if it doesn't run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT, check=False)  # noqa: S603 - the Java that Spark would run
    except (OSError, subprocess.TimeoutExpired):
        return None, ""
    found = _VERSION.search(done.stderr)
    output = " ".join((done.stderr + done.stdout).split())[:_LONGEST_MESSAGE]
    return (int(found[1]), "") if found and not done.returncode else (None, output)


PER_TASK: Final = 200_000
"""Remaining lines per task: a task's sort fits into a gigabyte."""
INTERPRETED: Final = 500_000
"""Up to this many, plans are interpreted: with 66,000 that takes two thirds of the time, with 330,000 five sixths."""
REPLANNED: Final = 5_000_000
"""From this many on, adaptive execution replans after each stage. Chosen, not measured."""

READ_PER_TASK: Final = 256 * 2**20
"""Bytes of JSON whose lines one task sorts, in memory: for two tasks in 2 GiB."""

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PLANNED_ONCE: Final = {"spark.sql.adaptive.enabled": "false"}
_DIRECTORIES_LISTED_AT_ONCE: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""For fewer, a direct request takes less time than making tasks of it."""
_WITHOUT_COMPILER: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def settings_for_rows(spark: SparkSession, *, rows: int) -> Iterator[Cache]:
    """A context for work on this many rows: for few, compiling plans takes longer than the work itself."""
    needed = max(spark.sparkContext.defaultParallelism, rows // PER_TASK)
    settings = {_PARTITIONS: str(min(_partitions(spark) or needed, needed))}
    settings |= _PLANNED_ONCE if rows < REPLANNED else {}
    settings |= _WITHOUT_COMPILER if rows < INTERPRETED else {}
    with _changed_settings(spark, settings), ExitStack() as cached:

        def persist(table: DataFrame) -> DataFrame:
            cached.callback(table.unpersist)
            return table.persist()

        # If planning is most of the work, a checkpoint isn't planned again. It can't be recomputed either, so this is
        # only for Spark in one process, which can't lose a part of its data.
        is_checkpoint_better = _runs_in_this_process(spark) and rows < INTERPRETED
        yield (lambda table: table.localCheckpoint(eager=False)) if is_checkpoint_better else persist


@contextmanager
def settings_for_reading(spark: SparkSession, *, size: int) -> Iterator[None]:
    """A context for sorting this many bytes of lines, with more tasks than cores if necessary."""
    with _changed_settings(spark, {_PARTITIONS: str(max(_partitions(spark), size // READ_PER_TASK))}):
        yield


def _runs_in_this_process(spark: SparkSession) -> bool:
    """True if all tasks run in this process, beside the driver."""
    return str(spark.sparkContext.master).startswith("local")


def _partitions(spark: SparkSession) -> int:
    return int(spark.conf.get(_PARTITIONS) or 0)


@contextmanager
def _changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    former = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in former.items():
            spark.conf.set(name, value)


def in_parallel(spark: SparkSession, *actions: Callable[[], Any]) -> list[Any]:
    """The results of all: while one is planned, another can work. Raises the first error after all have ended."""
    with ThreadPoolExecutor(len(actions), thread_name_prefix="report") as threads:
        # Each inherits its own copy: Spark's properties for the step of one must not be visible to the others.
        started = [threads.submit(inheritable_thread_target(spark)(work)) for work in actions]
    return [one.result() for one in started]


def literal_table(spark: SparkSession, rows: Sequence[Mapping[str, object]], columns: str) -> DataFrame:
    """A small table, made without a Python worker: executors need no Python. `columns` is a schema in DDL; dates are
    passed as text."""
    parsed = fn.from_json(fn.lit(json.dumps(rows, default=str)), f"array<struct<{columns}>>")
    return spark.range(1, numPartitions=1).select(fn.inline(parsed))
