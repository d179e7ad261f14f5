"""Starts agents from one process that has imported all of the agent: importing takes longer than most tests need one.

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
from pathlib import Path
from typing import Any, Final, NoReturn

LARGEST: Final = 64 * 1024
IMPORTED: Final = ("agent.cli.main", "agent.cli.run")
COMMAND: Final = "agent.cli.main"


class Preloaded:
    """The process that forks agents; `mark` is in the environment of all of them."""

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
        """Runs the module as a program, with the agent's directory as its own."""
        ours, theirs = socket.socketpair()
        request = json.dumps({"module": module, "arguments": [str(each) for each in arguments]}).encode()
        with theirs, output.open("ab") as log:
            socket.send_fds(self._requests, [request], [theirs.fileno(), log.fileno()])
        return Started(ours.detach())

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


class Started:
    """An agent, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, reports: int) -> None:
        """`reports` is a descriptor to read the process's id from, and at its end its status."""
        self._reports = reports
        self.pid = int(os.read(reports, LARGEST))
        self._status: int | None = None

    def poll(self) -> int | None:
        """Its exit status; that of a signal is negative."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float) -> int:
        if self._status is None:
            if not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"agent {self.pid}", timeout)
            self._status = int(os.read(self._reports, LARGEST))
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
            data, descriptors, _, _ = socket.recv_fds(requests, LARGEST, 2)
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
    reports, log = socket.socket(fileno=descriptors[0]), descriptors[1]
    pid = os.fork()
    if not pid:
        for each in (*others, *children.values(), reports):
            each.close()
        _become(request, log)
    os.close(log)
    children[pid] = reports
    with suppress(OSError):
        reports.sendall(f"{pid}\n".encode())


def _report_ends(children: dict[int, socket.socket]) -> None:
    for pid in tuple(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with children.pop(pid) as reports, suppress(OSError):
                reports.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(request: dict[str, Any], log: int) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
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
