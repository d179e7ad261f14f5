"""The command as a process of its own, and what it cost.

`federation_agent` forks it from a process that has imported it; all else here starts it as an operator does.
"""

import atexit
import json
import os
import pty
import subprocess
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Final

from tests.lab.preloaded import Preloaded
from tests.lab.waiting import DEADLINE

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = str(Path(sysconfig.get_path("scripts"), "federation-agent"))
OF_INTERPRETER: Final = ("PYTHON", "LC_", "LANG")  # they count only when it starts

# A child's peak would begin at that of the process it was forked from, so a small one stands between pytest and it.
_MEASURE: Final = """
import json, os, sys, time
began = time.monotonic()
child = os.fork()
if not child:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
told = [time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]
open(sys.argv[1], "w").write(json.dumps(told))
sys.exit(os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended; costs in seconds and MiB, which are never the same twice."""

    status: int
    out: str
    err: str
    wall: float = field(default=0.0, compare=False)
    cpu: float = field(default=0.0, compare=False)
    peak: float = field(default=0.0, compare=False)

    @property
    def errors(self) -> list[str]:
        return self.err.splitlines()


def federation_agent(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Done:
    if any(name.startswith(OF_INTERPRETER) for name in environment):
        return printing_to(subprocess.PIPE, *arguments, cwd=cwd, **environment)
    ran = _preloaded().run(arguments, cwd=cwd or Path.cwd(), environment=_environment(environment), deadline=DEADLINE)
    return Done(ran.status, ran.out, ran.err, cpu=ran.cpu, peak=ran.peak)


@cache
def _preloaded() -> Preloaded:
    preloaded = Preloaded({}, cwd=ROOT)
    atexit.register(preloaded.close)
    return preloaded


def printing_to(stdout: int | IO[bytes], *arguments: str | Path, cwd: Path | None = None, **environment: str) -> Done:
    """With another place for standard output than a pipe that is read."""
    done = subprocess.run(
        [COMMAND, *arguments],
        cwd=cwd,
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return Done(done.returncode, done.stdout or "", done.stderr)


def on_terminal(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    """What the command prints to a terminal, both streams together."""
    ours, theirs = pty.openpty()
    environment = _environment({"TERM": "xterm"} | environment)
    with subprocess.Popen([COMMAND, *arguments], cwd=cwd, env=environment, stdout=theirs, stderr=theirs):
        os.close(theirs)
        said = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return said.decode()


def _read(terminal: int) -> bytes:
    """What is there; nothing once whoever wrote has gone, which is an error to Linux."""
    with suppress(OSError):
        return os.read(terminal, 65536)
    return b""


def measured(*arguments: str | Path, cwd: Path, **environment: str) -> Done:
    """Started as an operator does, with what it took of time and memory."""
    told = cwd / "measured"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", _MEASURE, told, COMMAND, *arguments],
        cwd=cwd,
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr, *json.loads(told.read_text()))


def _environment(changes: dict[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    return ours | changes
