"""Reads a file whole, if it is one and not too large; a pipe or device never makes the agent wait."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

DEADLINE: Final = 10.0  # seconds
MOST_HANGING: Final = 32  # threads that may wait for a disk at once

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # some of /proc are files, and wait


class UnreadableError(Exception):
    """Why a file can't be read, in an operator's words."""


class HangingError(UnreadableError):
    """The disk doesn't answer; it may later."""


def read_file(path: str, limit: int) -> bytes:
    try:
        _refuse_unfit(Path(path).stat(), limit)  # before it is opened: some devices act on that
        with os.fdopen(os.open(path, _FLAGS), "rb", buffering=0) as file:
            _refuse_unfit(os.fstat(file.fileno()), limit)
            data = _read(file.fileno(), limit)
    except (OSError, ValueError) as error:
        raise UnreadableError(_reason(error)) from error
    if len(data) > limit:
        raise UnreadableError(_too_large(limit))
    return data


async def read_in_time(
    path: str, limit: int, *, within: float = DEADLINE, read: Callable[[str, int], bytes] = read_file
) -> bytes:
    """`read_file` for paths that anybody may name: a network disk may hang, and takes nothing else with it.

    The thread is a daemon, so the end of the process doesn't wait for it either. A file that hangs is not read again
    before it answers.
    """
    _refuse_hanging(path)
    reader = _Reader(path, partial(read, path, limit))
    reader.start()
    try:
        async with asyncio.timeout(within):
            return await asyncio.wrap_future(reader.done)
    except TimeoutError as error:
        raise HangingError(f"the file can't be read within {within:g} s; check the disk that it is on") from error
    finally:
        reader.is_left = not reader.done.done()


class _Reader(threading.Thread):
    """Reads one file; `is_left` when nobody waits for it any more."""

    def __init__(self, path: str, read: Callable[[], bytes]) -> None:
        super().__init__(name=f"read {path}", daemon=True)
        self.path = path
        self.is_left = False
        self.done: Future[bytes] = Future()
        self.done.set_running_or_notify_cancel()  # from here on it can't be cancelled
        self._read = read

    def run(self) -> None:
        try:
            data = self._read()
        except UnreadableError as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(data)


def _refuse_hanging(path: str) -> None:
    hanging = [each.path for each in threading.enumerate() if isinstance(each, _Reader) and each.is_left]
    if path in hanging:
        raise HangingError("an earlier attempt to read the file still hangs; check the disk that it is on")
    if len(hanging) >= MOST_HANGING:
        raise HangingError(f"{MOST_HANGING} other files hang; check the disks that certificates are on")


def _read(descriptor: int, limit: int) -> bytes:
    """At most one byte more than the limit."""
    parts: list[bytes] = []
    left = limit + 1
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _refuse_unfit(found: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise UnreadableError("this is a directory; name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableError("this is a pipe or device, not a file")
    if found.st_size > limit:
        raise UnreadableError(_too_large(limit))


def _too_large(limit: int) -> str:
    size = f"{limit // 1024 // 1024} MiB" if limit >= 1024 * 1024 else f"{limit // 1024} KiB"
    return f"the file is larger than {size}"


def _reason(error: OSError | ValueError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case PermissionError():
            return "the file may not be read; look at its permissions"
        case OSError():
            return f"the file can't be read: {error.strerror}"
        case _:
            return "the path holds a character that no path can hold"
