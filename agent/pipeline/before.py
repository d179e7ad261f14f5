"""What can be checked before Spark starts, which takes many seconds: objectives, and that nobody else writes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from agent.errors import CannotStartError
from agent.pipeline.options import Options
from agent.pipeline.tables.objectives import parse_objectives

LOCK: Final = ".lock"


def check(options: Options) -> None:
    """Objectives in a local file; those on another file system are read when Spark runs."""
    path = None if options.objectives is None else local(options.objectives)
    if path is None:
        return
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CannotStartError(f"--objectives {path}: can't be read: {reason}; give a YAML file") from error
    parse_objectives(text, source=str(options.objectives))


@contextmanager
def alone(output: str) -> Iterator[None]:
    """Holds the lock of a local output; it ends with the process, however that ends. Object stores have none."""
    directory = local(output)
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


def local(path: str) -> Path | None:
    """None on another file system than this machine's."""
    scheme, found, rest = path.partition(":")
    if not found or "/" in scheme:
        return Path(path)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None
