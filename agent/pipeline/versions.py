"""An output on this machine: it has one writer, and its readers see all of one run.

Each run makes a version of its own, which begins with hard links to the files of the visible one, so that it costs what
it changes. One rename of the link `current` shows it. `intervals`, `report.html` and the others are links into
`current`, so readers who know nothing of versions see the same.

    OUTPUT/current -> _versions/00000007-5be1c2f0
    OUTPUT/intervals -> current/intervals
    OUTPUT/_versions/00000007-5be1c2f0/intervals/date=2026-01-31/…
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final

from agent.errors import CannotStartError

VERSIONS: Final = "_versions"
CURRENT: Final = "current"
MANIFEST: Final = "current.json"
_DRAFT: Final = ".draft"
_FORMER: Final = ".former"
_NEW: Final = ".new"
_UNFINISHED: Final = (".spark-staging-", "_temporary")
LOCK: Final = ".lock"


class Versions:
    """The versions of one output, which nobody else writes meanwhile. `names` are the tables and documents that readers
    know."""

    def __init__(self, output: Path, names: Collection[str], *, keep: int) -> None:
        self._output = output
        self._made = output / VERSIONS
        self._names = names
        self._keep = keep
        self.run = ""

    def open(self) -> None:
        """Removes what killed runs have left, and brings an output without versions into this shape."""
        self._made.mkdir(parents=True, exist_ok=True)
        for left in [*self._made.glob(f"*{_DRAFT}"), *self._made.glob(f"*{_FORMER}"), *self._output.glob(f".*{_NEW}")]:
            _remove(left)
        if (visible := self._visible()) is not None:
            self._lead_to(visible)
            return
        paths = {name: self._output / name for name in self._names}
        if existing := [name for name, path in paths.items() if path.exists() and not path.is_symlink()]:
            self._begin_run()
            for name in existing:
                _link_all(paths[name], self._draft / name)
            self.show()

    def begin(self, tables: Collection[str]) -> str:
        """The name of a draft inside the output, with these tables as they are now."""
        self._begin_run()
        visible = self._visible()
        for name in tables:
            if visible is not None and (visible / name).exists():
                _link_all(visible / name, self._draft / name)
        return f"{VERSIONS}/{self._draft.name}"

    def show(self) -> None:
        """The draft is what readers see from now on."""
        finished = self._made / self.run
        self._draft.rename(finished)
        self._lead_to(finished, first=True)
        _put_link(self._output / CURRENT, f"{VERSIONS}/{self.run}")
        manifest = self._output / f".{MANIFEST}{_NEW}"
        manifest.write_text(json.dumps({"run": self.run, "path": f"{VERSIONS}/{self.run}"}) + "\n")
        manifest.replace(self._output / MANIFEST)
        self._lead_to(finished)
        self._remove_old()

    def _begin_run(self) -> None:
        last = max((int(each.name.partition("-")[0]) for each in self._finished()), default=0)
        self.run = f"{last + 1:08d}-{token_hex(4)}"
        self._draft.mkdir()

    @property
    def _draft(self) -> Path:
        return self._made / f"{self.run}{_DRAFT}"

    def _visible(self) -> Path | None:
        current = self._output / CURRENT
        return current.resolve() if current.exists() else None

    def _finished(self) -> list[Path]:
        """The finished versions, in the order in which they were made."""
        found = (each for each in self._made.iterdir() if each.name.partition("-")[0].isdigit() and each.is_dir())
        return sorted(each for each in found if not each.name.endswith((_DRAFT, _FORMER)))

    def _lead_to(self, version: Path, *, first: bool = False) -> None:
        """Each name leads into the visible version. Names that the next version has and the visible one hasn't are
        made `first`, and lead nowhere until it is visible: then all of it is there at once.
        """
        for name in self._names:
            path = self._output / name
            if (version / name).exists():
                if not path.is_symlink():
                    if path.is_dir():
                        path.rename(self._made / f"{name}{_FORMER}")
                    _put_link(path, f"{CURRENT}/{name}")
            elif path.is_symlink() and not first:
                path.unlink()
        for former in self._made.glob(f"*{_FORMER}"):
            _remove(former)

    def _remove_old(self) -> None:
        visible = self._visible()
        others = [each for each in self._finished() if each != visible]
        for old in others[: max(0, len(others) - self._keep + 1)]:
            _remove(old)


def _put_link(path: Path, target: str) -> None:
    """Put a link in place of what was there: readers see one or the other."""
    new = path.with_name(f".{path.name}{_NEW}")
    _remove(new)
    new.symlink_to(target)
    new.replace(path)


def _link_all(source: Path, target: Path) -> None:
    """Link the same files under another name. Nobody changes a file that exists: a new one takes its place."""
    if source.is_dir():
        target.mkdir(parents=True)
        for each in source.iterdir():
            if not each.name.startswith(_UNFINISHED):
                _link_all(each, target / each.name)
        return
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links, or with too many of this file
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def only_writer(output: str) -> Iterator[None]:
    """Holds the lock of a local output; it ends with the process, however that ends. Object stores have none."""
    directory = local_path(output)
    if directory is None:
        yield
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CannotStartError(
            f"--output {output}: can't be written: {error.strerror}; give a writable directory"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise CannotStartError(
            f"--output {output}: another report is writing there; wait for it, or give another directory"
        ) from error
    finally:
        os.close(lock)


def local_path(path: str) -> Path | None:
    """The path on this machine; None if it is on another file system."""
    scheme, found, rest = path.partition(":")
    if not found or "/" in scheme:
        return Path(path)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None
