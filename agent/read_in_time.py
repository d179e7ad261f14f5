"""Reads files that tenants may name: a hanging disk affects nothing else.

Apart from `read_file`, which commands use that load no asyncio.

Why: docs/decisions/0021-files-that-tenants-name.md
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

from agent.read_file import UnreadableError, read_file

DEADLINE: Final = 10.0  # seconds
MOST_HANGING: Final = 32  # threads that may wait for a disk at the same time


class HangingError(UnreadableError):
    """The disk doesn't answer now; it may later."""


async def read_in_time(
    path: str, limit: int, *, within: float = DEADLINE, read: Callable[[str, int], bytes] = read_file
) -> bytes:
    """`read_file` within a deadline.

    The thread is a daemon, so the end of the process doesn't wait for it either. A file that hangs is not read again
    before it answers.
    """
    _refuse_hanging(path)
    reader = _FileReader(path, partial(read, path, limit))
    reader.start()
    try:
        async with asyncio.timeout(within):
            return await asyncio.wrap_future(reader.done)
    except TimeoutError as error:
        raise HangingError(f"the file can't be read within {within:g} s; check the disk that it is on") from error
    finally:
        reader.is_left = not reader.done.done()


class _FileReader(threading.Thread):
    """Reads one file; `is_left` when the result is no longer awaited."""

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
    hanging = [each.path for each in threading.enumerate() if isinstance(each, _FileReader) and each.is_left]
    if path in hanging:
        raise HangingError("an earlier attempt to read the file still hangs; check the disk that it is on")
    if len(hanging) >= MOST_HANGING:
        raise HangingError(f"{MOST_HANGING} other files hang; check the disks that certificates are on")
