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


def test_one_that_was_replaced_where_it_alone_is_mounted_is_not_followed_any_more(tmp_path: Path) -> None:
    """A path to an inode that has no name any more, as such a mount is."""
    file = tmp_path / "file"
    file.write_text("before")
    with file.open() as mounted:
        path = f"/proc/self/fd/{mounted.fileno()}"
        assert read_file(path, LIMIT, is_followed=True) == b"before"
        (tmp_path / "new").write_text("after")
        (tmp_path / "new").replace(file)
        assert read_file(path, LIMIT) == b"before"  # by those who are asked once, which it still serves
        with pytest.raises(UnreadableError, match="mounted as a single file, which was replaced"):
            read_file(path, LIMIT, is_followed=True)
