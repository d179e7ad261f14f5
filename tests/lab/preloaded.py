"""Starts agents and commands from one process that has imported all of the agent: importing takes longer than most
tests need one.

Each agent is a process of its own, forked before anything of it has begun. That the command itself starts is for
`tests/acceptance` to show.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, NoReturn

LARGEST: Final = 64 * 1024
IMPORTED: Final = ("agent.cli.main", "agent.cli.run")
COMMAND: Final = "agent.cli.main"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended. Its CPU seconds lack those of importing; its peak in MiB begins with what was imported."""

    status: int
    out: str
    err: str
    cpu: float
    peak: float


class Preloaded:
    """The process that forks agents and commands; `mark` is in the environment of all of them."""

    def __init__(self, mark: Mapping[str, str], *, cwd: Path) -> None:
        self._cwd = cwd
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.lab.preloaded", str(theirs.fileno())],
                cwd=cwd,
                env={**os.environ, **mark},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def start(self, arguments: Sequence[str | Path], *, output: Path, module: str = COMMAND) -> Started:
        """Runs the module as a program, which writes all to `output`."""
        with output.open("ab") as log:
            return self._fork({"module": module}, arguments, (log, log))

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        deadline: float,
        module: str = COMMAND,
    ) -> Ran:
        """Runs the command, or another module as a program, to its end."""
        with TemporaryFile() as output, TemporaryFile() as errors:
            more = {"module": module, "cwd": str(cwd), "environment": dict(environment)}
            started = self._fork(more, arguments, (output, errors))
            try:
                status = started.wait(deadline)
            except subprocess.TimeoutExpired:
                started.send_signal(signal.SIGKILL)
                raise
            return Ran(status, _written(output), _written(errors), started.cpu, started.peak)

    def _fork(
        self, request: Mapping[str, object], arguments: Sequence[str | Path], outputs: tuple[IO[bytes], IO[bytes]]
    ) -> Started:
        ours, theirs = socket.socketpair()
        data = json.dumps({**request, "arguments": [str(each) for each in arguments]}).encode()
        with theirs:
            socket.send_fds(self._requests, [data], [theirs.fileno(), *(each.fileno() for each in outputs)])
        return Started(ours.detach())

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


def _line(descriptor: int) -> bytes:
    """And no more: of a process that ended at once the status has come, too."""
    found = b""
    while (byte := os.read(descriptor, 1)) not in {b"", b"\n"}:
        found += byte
    return found


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class Started:
    """An agent, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, reports: int) -> None:
        """`reports` is a descriptor to read the process's id from, and at its end its status."""
        self._reports = reports
        self.pid = int(_line(reports))
        self._status: int | None = None
        self.cpu = self.peak = 0.0  # seconds and MiB, at its end

    def poll(self) -> int | None:
        """Its exit status; that of a signal is negative."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float) -> int:
        if self._status is None:
            if not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"agent {self.pid}", timeout)
            self._status, self.cpu, self.peak = json.loads(os.read(self._reports, LARGEST))
            os.close(self._reports)
        return self._status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _serve(requests: socket.socket) -> None:
    """Until nobody asks any more; agents that still run are the lab's to end."""
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno())
    children: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            woken.recv(LARGEST)
            _report_ends(children)
        if requests in ready:
            data, descriptors, _, _ = socket.recv_fds(requests, LARGEST, 3)
            if not data:
                return
            _fork(json.loads(data), children, descriptors, others=(requests, woken, waking))


def _fork(
    request: dict[str, Any],
    children: dict[int, socket.socket],
    descriptors: list[int],
    *,
    others: Sequence[socket.socket],
) -> None:
    reports, outputs = socket.socket(fileno=descriptors[0]), descriptors[1:]
    pid = os.fork()
    if not pid:
        for other in (*others, *children.values(), reports):
            other.close()
        _become(request, outputs)
    for each in outputs:
        os.close(each)
    children[pid] = reports
    with suppress(OSError):
        reports.sendall(f"{pid}\n".encode())


def _report_ends(children: dict[int, socket.socket]) -> None:
    for pid in tuple(children):
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            report = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
            with children.pop(pid) as reports, suppress(OSError):
                reports.sendall(json.dumps(report).encode())


def _become(request: dict[str, Any], outputs: list[int]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Whatever started the tests: in the background, or by nohup, these are ignored, and commands keep to that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.setsid()
    for number, each in enumerate(outputs, start=1):
        os.dup2(each, number)
        os.close(each)
    if "cwd" in request:
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
    random.seed()
    sys.argv = [request["module"], *request["arguments"]]
    status = 1
    try:
        if request["module"] == COMMAND:
            importlib.import_module(COMMAND).main()
        else:
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - reported as the interpreter does
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        for name in IMPORTED:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        _serve(requests)


if __name__ == "__main__":
    _main()
