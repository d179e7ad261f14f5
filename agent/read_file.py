"""Reads a complete file, if it is regular and not too large; a pipe or device never blocks the agent.

Why: docs/decisions/0021-files-that-tenants-name.md
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # some files in /proc are regular, and block


class UnreadableError(Exception):
    """A file can't be read; the message is the reason, in an operator's words."""


REPLACED: Final = (
    "this is mounted as a single file, which was replaced or deleted where it comes from, so here is the former one: "
    "restart the container, and mount the folder instead"
)


def read_file(path: str, limit: int, *, is_followed: bool = False) -> bytes:
    """`is_followed`: its changes have to be seen, which ends where it alone is mounted and another takes its name."""
    try:
        found = Path(path).stat()
        if is_followed and not found.st_nlink:
            raise UnreadableError(REPLACED)
        _refuse_unfit(found, limit)  # before it is opened: that alone has an effect on some devices
        with os.fdopen(os.open(path, _FLAGS), "rb", buffering=0) as file:
            _refuse_unfit(os.fstat(file.fileno()), limit)
            data = _read(file.fileno(), limit)
    except (OSError, ValueError) as error:
        raise UnreadableError(_reason(error)) from error
    if len(data) > limit:
        raise UnreadableError(_too_large(limit))
    return data


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
            return "permission denied; check the file's permissions"
        case OSError():
            return f"the file can't be read: {error.strerror}"
        case _:
            return "the path contains a character that no path can contain"
