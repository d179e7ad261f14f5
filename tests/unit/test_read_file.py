"""Files that anybody may name: what is none is refused at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.read_file import UnreadableError, read_file

LIMIT = 1024


def refused(path: str) -> str:
    with pytest.raises(UnreadableError) as caught:
        read_file(path, LIMIT)
    return str(caught.value)


def test_a_file_is_read_whole_and_no_further_than_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * LIMIT)
    assert read_file(str(file), LIMIT) == b"x" * LIMIT
    file.write_bytes(b"x" * (LIMIT + 1))
    assert refused(str(file)) == "the file is larger than 1 KiB"


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), str(tmp_path / "link"), "/dev/zero", "/dev/tty"):
        assert refused(path) == "this is a pipe or device, not a file"
    assert "a directory" in refused(str(tmp_path))
    assert refused(str(tmp_path / "missing")) == "there is no such file"
    assert "no path can contain" in refused("a\0b")
