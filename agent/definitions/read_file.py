"""Reads a file whole, if it is one and not too large; a pipe or device never makes the agent wait."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnreadableError(Exception):
    """Why a file can't be read, in an operator's words."""


def read_file(path: str, limit: int) -> bytes:
    try:
        found = Path(path).stat()
        _refuse_unfit(found, limit)
        with Path(path).open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise UnreadableError(_reason(error)) from error
    if len(data) > limit:
        raise UnreadableError(_too_large(limit))
    return data


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
