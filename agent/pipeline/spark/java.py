"""How Spark's Java is started, and why it did not start, examined only after a failure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_PATIENCE: Final = 10.0
_MOST: Final = 300
_SAID: Final = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC")
_LAZY: Final = (
    "-XX:Tier4InvocationThreshold=75000 -XX:Tier4MinInvocationThreshold=9000 -XX:Tier4CompileThreshold=225000 "
    "-XX:Tier4BackEdgeThreshold=600000 -XX:FreqInlineSize=100 -XX:InlineSmallCode=800"
)
"""In a job of a minute, half the CPU would be spent on optimizing planning code that doesn't run again; only code that
processes lines is worth it, and less of it at a time."""
_REMEDY: Final = f"Spark needs Java {OLDEST} or later: install it, on Debian openjdk-17-jre-headless, or set JAVA_HOME"


def options() -> str:
    """The options before an operator's own; Java does not start with two garbage collectors."""
    return _LAZY if _a_collector_is_chosen() else f"-XX:+UseParallelGC {_LAZY}"


def _a_collector_is_chosen() -> bool:
    home, configured = os.environ.get("SPARK_HOME"), os.environ.get("SPARK_CONF_DIR")
    directories = [configured] if configured else [f"{home}/conf"] if home else []
    defaults = (Path(directory, "spark-defaults.conf") for directory in directories)
    said = [os.environ.get(name, "") for name in _SAID]
    said += [file.read_text(errors="replace") for file in defaults if file.is_file()]
    return any(_COLLECTOR.search(text) for text in said)


def what_is_wrong() -> str:
    """The error in a sentence, with what to do."""
    java = _path()
    if java is None:
        return f"Java is not installed; {_REMEDY}"
    version, said = _version(java)
    if version is None and said:
        return f"{java} does not run: {said}; fix that, for example a limit of memory (ulimit -v)"
    if version is None:
        return f"{java} does not run; {_REMEDY}"
    if version < OLDEST:
        return f"{java} is Java {version}, which is too old; {_REMEDY}"
    return f"Spark can't start with {java}, which is Java {version}: see its output above"


def _path() -> str | None:
    """Searched for in the same way as Spark does."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java")  # noqa: PTH118 - it is a name to show


def _version(java: str) -> tuple[int | None, str]:
    """None if it doesn't run, and what it said then."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603 - the Java that Spark would run
    except (OSError, subprocess.TimeoutExpired):
        return None, ""
    found = _VERSION.search(done.stderr)
    said = " ".join((done.stderr + done.stdout).split())[:_MOST]
    return (int(found[1]), "") if found and not done.returncode else (None, said)
