"""Decides when a change of files is complete: a file that is still being written, or missing for a moment, doesn't
count yet.

Why: docs/decisions/0030-removal-waits.md
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

LOOKS = 3  # consecutive checks with the same result

Signature: TypeAlias = tuple[int, int, int, int, int] | None
Signatures: TypeAlias = dict[str, Signature]


class WholeFiles:
    """Compares the current signatures of files with those of the last read."""

    def __init__(self) -> None:
        self._read: Signatures = {}
        self._found: Signatures = {}
        self._looks = 0

    @property
    def has_unread(self) -> bool:
        """True if a change was found that hasn't been read yet."""
        return self._looks > 0

    @property
    def is_changing(self) -> bool:
        """True if a change was found that isn't complete yet."""
        return 0 < self._looks < LOOKS

    def look(self, found: Signatures) -> bool:
        """Compare the files with those of the last read and the last check; True if there is a change, and the last
        checks found all files the same."""
        if not self.differ(found):
            self._looks = 0
        elif self._looks and found == self._found:
            self._looks += 1
        else:
            self._looks = 1
        self._found = found
        return self._looks >= LOOKS

    def differ(self, found: Signatures) -> bool:
        """True if files differ from the last read; a file that was never read doesn't count."""
        return any(path in self._read and self._read[path] != each for path, each in found.items())

    def is_whole(self, found: Signatures) -> bool:
        """True if this is the change that the last checks have found."""
        return self._looks >= LOOKS and found == self._found

    def take(self, found: Signatures) -> None:
        """Mark these as read."""
        self._read = found
        self._looks = 0

    def learn(self, found: Signatures) -> None:
        """Add files that the documents name."""
        for path, each in found.items():
            self._read.setdefault(path, each)


def signature(path: str) -> Signature:
    """A value that changes when a file is written or replaced, or a symbolic link on its path changes; None: no
    file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
