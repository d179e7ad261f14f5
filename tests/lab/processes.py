"""Finding and ending the lab's processes by an entry in their environment.

The entry is inherited by whatever a broker starts, also by what leaves its session, and needs no registering, so there
is no moment in which a crash of the tests could lose a process.
"""

import os
import signal
from pathlib import Path

PROC = Path("/proc")


def marked(entry: str) -> list[int]:
    """The ids of the processes whose environment has `NAME=value`."""
    return [int(folder.name) for folder in PROC.iterdir() if folder.name.isdigit() and _is_marked(folder, entry)]


def runs(pid: int, entry: str) -> bool:
    """Whether the process lives and is marked; a zombie, whose parent has yet to look, does not live."""
    folder = PROC / str(pid)
    try:
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"} and _is_marked(folder, entry)


def end(entry: str, sign: signal.Signals = signal.SIGKILL) -> bool:
    """Send the signal to every marked process; True if there was one."""
    pids = marked(entry)
    for pid in pids:
        _send(pid, entry, sign)
    return bool(pids)


def _send(pid: int, entry: str, sign: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # Looked at again now that the handle pins the process: its number may have passed to another meanwhile.
        if _is_marked(PROC / str(pid), entry):
            signal.pidfd_send_signal(handle, sign)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _is_marked(folder: Path, entry: str) -> bool:
    try:
        return entry.encode() in (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
