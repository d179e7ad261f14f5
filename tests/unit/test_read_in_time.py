"""A disk that hangs keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from agent.network import MOST_HANGING, HangingError, read_in_time
from agent.read_file import UnreadableError

LIMIT = 1024


def end_of_readers() -> None:
    for each in threading.enumerate():
        if each.name.startswith("read /away"):
            each.join(5)


async def hanging(path: str, answer: threading.Event) -> HangingError:
    def read(*_: object) -> bytes:
        answer.wait()
        return b"late"

    with pytest.raises(HangingError) as caught:
        await read_in_time(path, LIMIT, within=0.01, read=read)
    return caught.value


async def test_a_file_that_hangs_is_asked_once_and_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    answer = threading.Event()
    assert "can't be read within 0.01 s; check the disk" in str(await hanging("/away", answer))
    for _ in range(3):
        assert "an earlier attempt" in str(await hanging("/away", answer))
    assert [each.daemon for each in threading.enumerate() if each.name == "read /away"] == [True]
    assert await read_in_time(str(tmp_path / "file"), LIMIT) == b"x"
    answer.set()
    end_of_readers()
    with pytest.raises(UnreadableError, match="no such file"):
        await read_in_time("/away", LIMIT)


async def test_files_that_hang_are_few() -> None:
    answer = threading.Event()
    for number in range(MOST_HANGING):
        await hanging(f"/away/{number}", answer)

    def readers() -> int:
        return sum(each.name.startswith("read /away") for each in threading.enumerate())

    before = readers()
    assert "32 other files hang" in str(await hanging("/away/more", answer))
    assert readers() == before == MOST_HANGING
    answer.set()
    end_of_readers()


async def test_many_read_the_same_file_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for _ in range(20):
        found = await asyncio.gather(*(read_in_time(str(tmp_path / "file"), LIMIT) for _ in range(20)))
        assert set(found) == {b"x"}
