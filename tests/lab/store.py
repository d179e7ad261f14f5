"""What the processes of one lab make once and then share, or lend to one of them at a time: files under locks."""

from __future__ import annotations

import fcntl
import itertools
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TypeVar, cast

T = TypeVar("T")


class Store:
    """Things are pickled. Locks end with the process that has them, so a killed worker blocks nobody."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What the first who asks makes; the others wait and are given the same."""
        with self._lock(name):
            path = self._path(name)
            if not path.exists():
                path.write_bytes(pickle.dumps(make()))
            return cast("T", pickle.loads(path.read_bytes()))

    @contextmanager
    def lent(self, name: str, make: Callable[[], T], takes_back: Callable[[T], bool]) -> Iterator[T]:
        """For the caller alone: one that was given back, else a new one.

        What is out has no file: one whose borrower is killed is lent to nobody again.
        """
        with ExitStack() as held:
            path = self._path(held.enter_context(self._free_place(name)))
            thing: T | None = None
            if path.exists():
                thing = cast("T", pickle.loads(path.read_bytes()))
                path.unlink()
            lent = make() if thing is None else thing
            try:
                yield lent
            finally:
                if takes_back(lent):
                    path.write_bytes(pickle.dumps(lent))

    @contextmanager
    def _free_place(self, name: str) -> Iterator[str]:
        """First those where something waits to be lent; there are as many places as are asked for at once."""
        waiting = sorted(path.stem for path in self._directory.glob(f"{name}-*.pickle"))
        for place in itertools.chain(waiting, (f"{name}-{number}" for number in itertools.count())):
            with self._lock_file(place) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield place
                return

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with self._lock_file(name) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _lock_file(self, name: str) -> IO[str]:
        return (self._directory / f"{name}.lock").open("w")

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.pickle"
