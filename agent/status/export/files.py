"""The files of one run, one after another: each holds lines of one day and a limited time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

import structlog

from agent.core.settings import StatusExportSettings
from agent.status.export.names import WRITTEN, FileNames, day_directory, day_of
from agent.status.export.part_file import PartFile, finish_left, make_directory

LARGEST: Final = 64 * 1024 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Line:
    """One event with its newline, and its day; a sample is less of a loss, because it is repeated."""

    day: str
    text: bytes
    recurs: bool = False


class ExportFiles:
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
        self._left: list[Path] = []
        self._day = ""
        self._troubles: list[OSError] = []

    def prepare(self, day: str) -> None:
        """Finishes files of earlier runs, and opens the first file; raises OSError if that fails."""
        self._left = [path for path in self.directory.glob(f"date=*/*{WRITTEN}") if self._names.owns(path.name)]
        self._file = self._open(day)
        for path in self._left:
            log.warning("a file of an earlier run can't be finished yet", path=str(path))

    def write(self, lines: Sequence[Line]) -> None:
        """Appends lines and finishes files that are due; OSError says why lines are lost or a file is not finished."""
        self._troubles.clear()
        with self._noting():
            self._leave_removed()
        with self._noting():
            self._finish_due()
        for day, group in groupby(lines, key=attrgetter("day")):
            self._append(day, [line.text for line in group])
        if self._troubles:
            raise self._troubles[-1]

    def close(self) -> None:
        """Finishes the open file, and those that could not be finished before."""
        self._finish_left()
        self._leave_removed()
        self._finish()

    def _append(self, day: str, texts: Sequence[bytes]) -> None:
        lost = len(texts)
        with self._noting():
            file = self._file_of(day)
            before = file.lines
            try:
                file.append(texts)
            finally:
                lost -= file.lines - before
                if file.torn:
                    self._leave_torn(file)
        self.lost += lost

    def _file_of(self, day: str) -> PartFile:
        file = self._file
        if file is not None and (file.day != day or file.size >= LARGEST):
            with self._noting():
                self._finish()
        if self._file is None:
            self._file = self._open(day)
        return self._file

    def _finish_due(self) -> None:
        if self._file is not None and self._clock() - self._file.opened_at >= self._settings.rotate:
            self._finish()

    def _open(self, day: str) -> PartFile:
        self._finish_left()
        directory = self.directory / day_directory(day)
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
                self._left.append(file.path)
                raise

    def _finish_left(self) -> None:
        """Finishes files left by a crash or a failing disk; failures are tried again with the next file."""
        left, self._left = self._left, []
        for path in left:
            try:
                finish_left(path, fsync=self._settings.fsync)
            except OSError:
                self._left.append(path)

    def _leave_torn(self, file: PartFile) -> None:
        self._file = None
        self._left.append(file.path)
        file.leave()

    def _leave_removed(self) -> None:
        """Closes a file that was deleted: its lines would be lost."""
        file = self._file
        if file is not None and file.is_removed:
            self._file = None
            self.lost += file.lines
            file.leave()
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(file.path))

    def _expire(self, today: date) -> None:
        """Deletes this agent's files of expired days, and no others. With a clock set ahead by mistake every day would
        be expired; this is recognized because there are no files of the day before.
        """
        yesterday = self.directory / day_directory((today - timedelta(days=1)).isoformat())
        if self._settings.keep_days is None or not yesterday.is_dir():
            return
        oldest = today - timedelta(days=self._settings.keep_days)
        for directory in self.directory.glob("date=*"):
            day = day_of(directory.name)
            if day is not None and day < oldest:
                with self._noting():
                    _delete(directory, self._names)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Collects an error for the end; the rest is still done."""
        try:
            yield
        except OSError as error:
            self._troubles.append(error)


def _delete(directory: Path, names: FileNames) -> None:
    for path in directory.iterdir():
        if names.owns(path.name) and not path.name.endswith(WRITTEN):  # its agent may be alive
            path.unlink(missing_ok=True)
    with suppress(OSError):  # others keep their files there
        directory.rmdir()
