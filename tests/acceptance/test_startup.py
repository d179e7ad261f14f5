"""A command starts at once, because none pays for another."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.command import ROOT, measured
from tests.lab.waiting import DEADLINE

MOST_CPU = 1.5  # a quarter of a second on an idle machine; some are slow, and all are busy at times
SMALL = ROOT / "config" / "minimal.yaml"
_MODULES = """
import sys
from agent.cli.main import run
try:
    run(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""

_COLLECTION = """
import gc, sys
from agent.cli.main import run
from agent.cli.run import COLLECT_AFTER
try:
    run(["run", "-c", "missing.yaml"])
except SystemExit:
    pass
print(gc.get_threshold() == COLLECT_AFTER, gc.get_freeze_count() > 10_000, file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [("validate", "-c", SMALL), ("--help",), ("plan", "--help"), ("--version",)])
def test_a_command_costs_little_to_start(tmp_path: Path, arguments: tuple[str | Path, ...]) -> None:
    tried = (measured(*arguments, cwd=tmp_path) for _ in range(3))  # again only where something else disturbed it
    done = next((done for done in tried if done.cpu < MOST_CPU), None)
    assert done is not None
    assert done.status == 0


def test_an_agent_seldom_looks_for_garbage_and_never_among_its_modules(tmp_path: Path) -> None:
    """A run begins with that, whatever becomes of it."""
    done = subprocess.run(
        [sys.executable, "-c", _COLLECTION], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    assert done.stderr.splitlines()[-1] == "True True", done.stderr


def imported(*arguments: str | Path) -> set[str]:
    """The modules that a command has loaded by its end."""
    done = subprocess.run(
        [sys.executable, "-c", _MODULES, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("validate", "-c", SMALL), ("import-legacy", "-h"), ("--help",), ("--version",)])
def test_commands_that_ask_no_broker_load_nothing_that_does(arguments: tuple[str | Path, ...]) -> None:
    found = imported(*arguments)
    assert "agent.cli.main" in found
    assert not found & {"aiohttp", "agent.amqp", "agent.management", "agent.runtime", "asyncio", "pyspark"}
    assert not found & {"prometheus_client", "structlog", "uvloop", "rich", "tenacity"}


NOBODY = "http://127.0.0.1:9"


def test_a_command_that_asks_an_agent_loads_nothing_that_asks_a_broker() -> None:
    found = imported("status", "--url", NOBODY)
    assert "agent.cli.remote" in found
    assert not found & {"aiohttp", "agent.amqp", "agent.management", "agent.runtime", "agent.core.model", "pyspark"}
    assert not found & {"prometheus_client", "structlog", "uvloop", "rich", "tenacity", "regex", "yaml"}


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        (("--help",), 19),
        (("status", "--url", NOBODY), 33),
        (("validate", "-c", SMALL), 72),
        (("run", "-c", "missing.yaml"), 242),
    ],
)
def test_a_command_loads_few_of_our_modules(arguments: tuple[str | Path, ...], most: int) -> None:
    """A module takes about a third of a millisecond: raise a bound only for what the command can't do without."""
    ours = sorted(module for module in imported(*arguments) if module.partition(".")[0] == "agent")
    assert len(ours) <= most, ours


@pytest.mark.parametrize("arguments", [("--help",), ("validate", "--help"), ("plan", "-h"), ("--version",)])
def test_help_loads_no_command(arguments: tuple[str, ...]) -> None:
    ours = {module for module in imported(*arguments) if module.startswith("agent.")}
    text = {"agent.core", "agent.core.text"}
    statuses = {"agent.core.links", "agent.core.links.lifecycle"}  # which an option takes
    reasons = {"agent.core.rules", "agent.core.rules.names", "agent.core.rules.quarantine"}  # and which another takes
    commands = {f"agent.cli.{name}_commands" for name in ("agent", "file")}
    options = commands | {
        "agent.cli",
        "agent.cli.main",
        "agent.cli.output",
        "agent.cli.options",
        "agent.cli.quarantine",
        "agent.cli.move_commands",
        "agent.cli.standby_commands",
    }
    version = {"agent.version"} if arguments == ("--version",) else set()
    assert ours == options | statuses | reasons | text | version | {"agent.errors"}
