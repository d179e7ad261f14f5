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


def program(pid: int) -> str:
    """What it runs; nothing of one that has ended."""
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def born(pid: int) -> str:
    """When it began, by which a process differs from a later one with its id; nothing of one that has ended.

    A zombie, whose parent has yet to look, has ended. Its environment wouldn't do: each exec empties it for a moment.
    """
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]


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
