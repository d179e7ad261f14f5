"""One file while it is written, and how it is finished: by its writer, or after a crash by the next run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from agent.core.settings import Fsync

_BLOCK: Final = 65_536
_MODE: Final = 0o644


class PartFile:
    """Between method calls it ends with a complete line, unless it is `torn`. It is locked while it is open."""

    def __init__(self, path: Path, descriptor: int, *, day: str, fsync: Fsync, opened_at: float) -> None:
        self.path = path
        self.day = day
        self.opened_at = opened_at
        self.size = 0
        self.lines = 0
        self.torn = False
        self._descriptor = descriptor
        self._fsync = fsync

    @classmethod
    def create(cls, path: Path, *, day: str, fsync: Fsync, opened_at: float) -> PartFile | None:
        """The new file; None if the name is taken."""
        if _finished(path).exists():
            return None
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, _MODE)
        except FileExistsError:
            return None
        try:
            owned = _lock(descriptor) and _is_at(path, descriptor)  # another agent may finish the file first
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        if not owned:
            os.close(descriptor)
            return None
        return cls(path, descriptor, day=day, fsync=fsync, opened_at=opened_at)

    @property
    def is_removed(self) -> bool:
        """True once the file was deleted, so that new lines would be lost."""
        return os.fstat(self._descriptor).st_nlink == 0

    def append(self, lines: Sequence[bytes]) -> None:
        data = b"".join(lines)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, memoryview(data)[written:])
        except OSError:
            whole = data.rfind(b"\n", 0, written) + 1
            self._count(data[:whole])
            if whole < written:
                self._cut()
            raise
        self._count(data)
        if self._fsync is Fsync.ALWAYS:
            os.fdatasync(self._descriptor)

    def _count(self, kept: bytes) -> None:
        self.size += len(kept)
        self.lines += kept.count(b"\n")

    def _cut(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            self.torn = True
            raise

    def finish(self) -> None:
        """Gives it its final name, on the disk; a file without lines is deleted."""
        try:
            _settle(self.path, self._descriptor, self.size, fsync=self._fsync)
        finally:
            self.close()

    def close(self) -> None:
        """Leaves it as it is."""
        os.close(self._descriptor)


def finish_leftover(path: Path, *, fsync: Fsync) -> None:
    """Finishes a leftover file, without its incomplete line; not while its writer is alive."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        if _lock(file.fileno()) and _is_at(path, file.fileno()):
            size = _end_of_lines(file)
            file.truncate(size)
            _settle(path, file.fileno(), size, fsync=fsync)


def make_directory(path: Path, *, fsync: Fsync) -> None:
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        _sync_directory(path.parent, fsync)


def _settle(path: Path, descriptor: int, size: int, *, fsync: Fsync) -> None:
    if not size:
        path.unlink()
        return
    if fsync is not Fsync.NEVER:
        os.fsync(descriptor)
    path.rename(_finished(path))
    _sync_directory(path.parent, fsync)


def _finished(path: Path) -> Path:
    return path.with_suffix("")


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _sync_directory(path: Path, fsync: Fsync) -> None:
    if fsync is Fsync.NEVER:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_of_lines(file: BinaryIO) -> int:
    """The position after the last complete line."""
    at = file.seek(0, os.SEEK_END)
    while at:
        begin = max(0, at - _BLOCK)
        file.seek(begin)
        found = file.read(at - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return 0
