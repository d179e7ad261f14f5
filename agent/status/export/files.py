"""The files of one run: their names, and one after another, each with lines of one day and a limited time. A file is
finished by its writer, or after a crash by the next run."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

import structlog

from agent.core.settings import Fsync, StatusExportSettings

LARGEST: Final = 64 * 1024 * 1024
WRITTEN: Final = ".jsonl.part"
_BLOCK: Final = 65_536
_MODE: Final = 0o644
LONGEST_AGENT: Final = 190  # file systems allow 255 bytes, and a suffix follows
_HIDDEN: Final = {".": "%2E", "_": "%5F"}  # readers of such directories skip names with this prefix
_DAY: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_REST: Final = re.compile(r"-\d{8}T\d{6}\.\d{6}Z-\d{6,}\.jsonl(?:\.part)?")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FileNames:
    """The names of one run of one agent; `agent` and `started` are safe in file names."""

    agent: str
    started: str

    @classmethod
    def of(cls, agent: str, started: float) -> FileNames:
        time = datetime.fromtimestamp(started, UTC)
        return cls(safe(agent), f"{time:%Y%m%dT%H%M%S.%fZ}")

    def written(self, number: int) -> str:
        return f"{self.agent}-{self.started}-{number:06}{WRITTEN}"

    def owns(self, name: str) -> bool:
        """True if a file of that name belongs to any run of this agent."""
        return name.startswith(self.agent) and _REST.fullmatch(name, len(self.agent)) is not None


def safe(agent: str) -> str:
    """A unique name for each agent, without characters that are special in file names."""
    text = quote(agent, safe="")
    text = _HIDDEN.get(text[0], text[0]) + text[1:]
    if len(text) <= LONGEST_AGENT:
        return text
    return f"{text[:LONGEST_AGENT]}~{hashlib.sha256(agent.encode()).hexdigest()[:16]}"


def day_of(directory: str) -> date | None:
    """The day whose events are in a directory of that name."""
    found = _DAY.fullmatch(directory)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ExportLine:
    """One event with its newline, and its day; a sample is less of a loss, because it is repeated."""

    day: str
    text: bytes
    recurs: bool = False


class EventFiles:
    """Used by one thread at a time. `lost` counts lines that were passed in and not written."""

    def __init__(self, settings: StatusExportSettings, names: FileNames, *, clock: Callable[[], float]) -> None:
        """`clock` is monotonic, independent of the time of day."""
        self.lost = 0
        self.directory = Path(settings.directory)
        self._settings = settings
        self._names = names
        self._clock = clock
        self._number = 0
        self._file: PartFile | None = None
        self._leftovers: list[Path] = []
        self._day = ""
        self._errors: list[OSError] = []

    def prepare(self, day: str) -> None:
        """Finishes files of earlier runs, and opens the first file; raises OSError if that fails."""
        self._leftovers = [path for path in self.directory.glob(f"date=*/*{WRITTEN}") if self._names.owns(path.name)]
        self._file = self._open(day)
        for path in self._leftovers:
            log.warning("a file of an earlier run can't be finished yet", path=str(path))

    def write(self, lines: Sequence[ExportLine]) -> None:
        """Appends lines and finishes files that are due; OSError says why lines are lost or a file is not finished."""
        self._errors.clear()
        with self._collecting_errors():
            self._close_removed()
        with self._collecting_errors():
            self._finish_due()
        for day, group in groupby(lines, key=attrgetter("day")):
            self._append(day, [line.text for line in group])
        if self._errors:
            raise self._errors[-1]

    def close(self) -> None:
        """Finishes the open file, and those that could not be finished before."""
        self._finish_leftovers()
        self._close_removed()
        self._finish()

    def _append(self, day: str, texts: Sequence[bytes]) -> None:
        lost = len(texts)
        with self._collecting_errors():
            file = self._file_of(day)
            before = file.lines
            try:
                file.append(texts)
            finally:
                lost -= file.lines - before
                if file.torn:
                    self._close_torn(file)
        self.lost += lost

    def _file_of(self, day: str) -> PartFile:
        file = self._file
        if file is not None and (file.day != day or file.size >= LARGEST):
            with self._collecting_errors():
                self._finish()
        if self._file is None:
            self._file = self._open(day)
        return self._file

    def _finish_due(self) -> None:
        if self._file is not None and self._clock() - self._file.opened_at >= self._settings.rotate:
            self._finish()

    def _open(self, day: str) -> PartFile:
        self._finish_leftovers()
        directory = self.directory / f"date={day}"
        make_directory(directory, fsync=self._settings.fsync)
        if day != self._day:
            self._day = day
            self._expire(date.fromisoformat(day))
        while True:
            self._number += 1
            path = directory / self._names.written(self._number)
            file = PartFile.create(path, day=day, fsync=self._settings.fsync, opened_at=self._clock())
            if file is not None:
                return file

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.finish()
            except OSError:
                self._leftovers.append(file.path)
                raise

    def _finish_leftovers(self) -> None:
        """Finishes files left by a crash or a failing disk; failures are tried again with the next file."""
        leftovers, self._leftovers = self._leftovers, []
        for path in leftovers:
            try:
                finish_leftover(path, fsync=self._settings.fsync)
            except OSError:
                self._leftovers.append(path)

    def _close_torn(self, file: PartFile) -> None:
        self._file = None
        self._leftovers.append(file.path)
        file.close()

    def _close_removed(self) -> None:
        """Closes a file that was deleted: its lines would be lost."""
        file = self._file
        if file is not None and file.is_removed:
            self._file = None
            self.lost += file.lines
            file.close()
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(file.path))

    def _expire(self, today: date) -> None:
        """Deletes this agent's files of expired days, and no others. With a clock set ahead by mistake every day would
        be expired; this is recognized because there are no files of the day before.
        """
        yesterday = self.directory / f"date={today - timedelta(days=1)}"
        if self._settings.keep_days is None or not yesterday.is_dir():
            return
        oldest = today - timedelta(days=self._settings.keep_days)
        for directory in self.directory.glob("date=*"):
            day = day_of(directory.name)
            if day is not None and day < oldest:
                with self._collecting_errors():
                    _delete(directory, self._names)

    @contextmanager
    def _collecting_errors(self) -> Iterator[None]:
        """Collects an error for the end; the rest is still done."""
        try:
            yield
        except OSError as error:
            self._errors.append(error)


def _delete(directory: Path, names: FileNames) -> None:
    for path in directory.iterdir():
        if names.owns(path.name) and not path.name.endswith(WRITTEN):  # its agent may be alive
            path.unlink(missing_ok=True)
    with suppress(OSError):  # others keep their files there
        directory.rmdir()


class PartFile:
    """One file while it is written: locked, and between method calls it ends with a complete line, unless `torn`."""

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
