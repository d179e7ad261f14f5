"""Files on a real file system, with a clock and a date that a test sets."""

from __future__ import annotations

import errno
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given

from agent.core.settings import Fsync
from agent.status.export.files import LARGEST, WRITTEN, FileNames, day_of, safe
from tests.unit.core.strategies import names
from tests.unit.status.export.reading import finished, numbers, unfinished
from tests.unit.status.export.writing import STARTED, TODAY, Clock, crash, files, lines, prepared

TOMORROW = "2027-01-16"


@pytest.mark.parametrize("fsync", Fsync)
def test_a_file_is_written_aside_and_finished_by_the_clock(tmp_path: Path, fsync: Fsync) -> None:
    clock = Clock()
    writer = prepared(tmp_path / "made", clock=clock, rotate=60, fsync=fsync)
    writer.write(lines(range(1, 3)))
    [part] = unfinished(tmp_path / "made")
    assert part.read_bytes().count(b"\n") == 2
    assert finished(tmp_path / "made") == []
    clock.now = 60.0
    writer.write([])
    assert numbers(*finished(tmp_path / "made")) == [1, 2]
    assert unfinished(tmp_path / "made") == []
    writer.write(lines([3]))
    writer.close()
    assert numbers(*finished(tmp_path / "made")) == [1, 2, 3]
    assert [path.name for path in finished(tmp_path / "made")] == [
        "dc2-a-20270115T080000.250000Z-000001.jsonl",
        "dc2-a-20270115T080000.250000Z-000002.jsonl",
    ]


def test_a_line_is_in_the_directory_of_its_day_whichever_way_clocks_step(tmp_path: Path) -> None:
    writer = prepared(tmp_path)
    writer.write([*lines([1]), *lines([2, 3], TOMORROW), *lines([4])])
    writer.close()
    assert [(path.parent.name, numbers(path)) for path in finished(tmp_path)] == [
        (f"date={TODAY}", [1]),
        (f"date={TOMORROW}", [2, 3]),
        (f"date={TODAY}", [4]),
    ]


def test_a_large_file_is_finished_before_its_time(tmp_path: Path) -> None:
    writer = prepared(tmp_path, fsync=Fsync.NEVER)
    writer.write(lines(range(64), size=LARGEST // 64))
    writer.write(lines([64]))
    writer.close()
    assert [numbers(path) for path in finished(tmp_path)] == [list(range(64)), [64]]


def test_a_file_without_a_line_leaves_nothing(tmp_path: Path) -> None:
    writer = prepared(tmp_path)
    writer.close()
    assert list(tmp_path.glob("date=*/*")) == []


def test_what_a_crash_left_is_finished_without_its_torn_line(tmp_path: Path) -> None:
    for left in (b"", b'{"seq":2,"x', b'{"seq":2,"x":"' + b"y" * 200_000):
        directory = tmp_path / str(len(left))
        crashed = prepared(directory)
        crashed.write(lines([1]))
        crash(directory)
        with unfinished(directory)[0].open("ab") as part:
            part.write(left)
        prepared(directory).close()
        assert numbers(*finished(directory)) == [1]
        assert unfinished(directory) == []


def test_what_has_no_whole_line_goes(tmp_path: Path) -> None:
    prepared(tmp_path)
    crash(tmp_path)
    unfinished(tmp_path)[0].write_bytes(b'{"seq":1')
    prepared(tmp_path).close()
    assert list(tmp_path.glob("date=*/*")) == []


def test_nobody_finishes_what_another_still_writes(tmp_path: Path) -> None:
    alive, other, namesake = prepared(tmp_path), prepared(tmp_path, agent="dc2-b"), prepared(tmp_path)
    for writer in (alive, other, namesake):
        writer.write(lines([1]))
    assert len(unfinished(tmp_path)) == 3
    crash(tmp_path, agent="dc2-b")
    prepared(tmp_path, started=1_800_000_001).close()
    assert finished(tmp_path) == []
    for writer in (alive, namesake):
        writer.write(lines([2]))
        writer.close()
    assert numbers(*finished(tmp_path)) == [1, 2, 1, 2]
    assert [path.name[:5] for path in unfinished(tmp_path)] == ["dc2-b"]


def test_restarts_in_the_same_microsecond_overwrite_nothing(tmp_path: Path) -> None:
    for seq in range(3):
        writer = prepared(tmp_path)
        writer.write(lines([seq]))
        if seq == 1:
            crash(tmp_path)
        else:
            writer.close()
    assert numbers(*finished(tmp_path)) == [0, 1, 2]


def test_old_days_of_this_agent_go_and_nothing_else(tmp_path: Path) -> None:
    for day in ("2027-01-11", "2027-01-12", "2027-01-13"):
        one = prepared(tmp_path, day, agent="dc2-a")
        one.write(lines([1], day))
        one.close()
    other = prepared(tmp_path, "2027-01-12", agent="dc2-b")
    other.write(lines([2], "2027-01-12"))
    other.close()
    (tmp_path / "date=2027-01-12" / "notes").write_text("")
    (tmp_path / "date=then").mkdir()
    prepared(tmp_path, "2036-01-14", keep_days=2).close()
    assert (tmp_path / "date=2027-01-11").exists(), "a clock far ahead makes nothing old"
    (tmp_path / "date=2027-01-14").mkdir()
    writer = prepared(tmp_path, keep_days=2)
    assert not (tmp_path / "date=2027-01-11").exists()
    assert {path.name[:5] for path in (tmp_path / "date=2027-01-12").iterdir()} == {"dc2-b", "notes"}
    assert len(finished(tmp_path)) == 2
    writer.write(lines([3], TOMORROW))
    writer.close()
    assert not (tmp_path / "date=2027-01-13").exists()
    assert (tmp_path / "date=then").exists()


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file gets larger than that: a write is cut short, and the next one fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_is_cut_short_leaves_no_torn_line(tmp_path: Path) -> None:
    writer = prepared(tmp_path)
    with limited(1000):
        with pytest.raises(OSError, match="too large"):
            writer.write(lines(range(10), size=200))
        [part] = unfinished(tmp_path)
        assert numbers(part) == [0, 1, 2, 3]
        with pytest.raises(OSError, match="too large"):
            writer.write(lines([10], size=200))
        assert writer.lost == 7
    writer.write(lines([11], size=200))
    writer.close()
    assert numbers(*finished(tmp_path)) == [0, 1, 2, 3, 11]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mounted], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"mounting a file system needs root: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_a_full_disk_costs_events_until_it_has_room(small_disk: Path) -> None:
    clock = Clock()
    writer = prepared(small_disk, clock=clock, rotate=60)
    writer.write(lines(range(10), size=1000))
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space left") as error, ballast.open("wb") as file:
        file.write(b"x" * 1_000_000)
    assert error.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        writer.write(lines(range(10, 30), size=1000))
    clock.now = 60.0
    with pytest.raises(OSError, match="No space left"):
        writer.write(lines(range(30, 40), size=1000))
    ballast.unlink()
    writer.write(lines(range(40, 50), size=1000))
    writer.close()
    kept = numbers(*finished(small_disk))
    assert kept == sorted(kept)
    assert len(kept) + writer.lost == 50
    assert {*range(10), *range(40, 50)} <= set(kept)


def test_a_disk_that_is_read_only_for_a_while(small_disk: Path) -> None:
    clock = Clock()
    writer = prepared(small_disk, clock=clock, rotate=60)
    writer.write(lines([1]))
    writer.close()
    remount(small_disk, "ro")
    with pytest.raises(OSError, match="Read-only"):
        writer.write(lines([2]))
    with pytest.raises(OSError, match="Read-only"):
        prepared(small_disk)
    remount(small_disk, "rw")
    writer.write(lines([3]))
    writer.close()
    assert (numbers(*finished(small_disk)), writer.lost) == ([1, 3], 1)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)


def test_a_directory_that_vanishes_comes_again(tmp_path: Path) -> None:
    directory = tmp_path / "status"
    writer = prepared(directory)
    writer.write(lines([1, 2]))
    shutil.rmtree(directory)
    with pytest.raises(FileNotFoundError):
        writer.write(lines([3]))
    assert writer.lost == 2
    writer.write(lines([4]))
    shutil.rmtree(directory)
    with pytest.raises(FileNotFoundError):
        writer.close()
    assert writer.lost == 4


def test_a_file_that_can_not_be_finished_is_finished_with_the_next(tmp_path: Path) -> None:
    clock = Clock()
    writer = prepared(tmp_path, clock=clock, rotate=60)
    writer.write(lines([1]))
    [part] = unfinished(tmp_path)
    obstacle = part.with_suffix("")
    obstacle.mkdir()
    clock.now = 60.0
    with pytest.raises(IsADirectoryError):
        writer.write(lines([2]))
    obstacle.rmdir()
    writer.close()
    assert numbers(*finished(tmp_path)) == [1, 2]
    assert writer.lost == 0


def test_where_nothing_can_be_written_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        files(tmp_path / "file" / "status").prepare(TODAY)


def test_a_name_tells_agent_start_and_number() -> None:
    assert FileNames.of("dc2-a", STARTED).written(7) == "dc2-a-20270115T080000.250000Z-000007.jsonl.part"


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("dc2-a.example_1", "dc2-a.example_1"),
        ("a/b", "a%2Fb"),
        ("..", "%2E."),
        ("_hidden", "%5Fhidden"),
        ("ü *:\n", "%C3%BC%20%2A%3A%0A"),
        ("%2F", "%252F"),
    ],
)
def test_an_agent_of_any_name_has_safe_files(agent: str, expected: str) -> None:
    assert safe(agent) == expected


@given(names, names)
def test_no_two_agents_share_files(one: str, other: str) -> None:
    ours, theirs = FileNames.of(one, STARTED), FileNames.of(other, STARTED)
    assert ours.owns(ours.written(1))
    assert ours.owns(ours.written(1).removesuffix(".part"))
    assert ours.owns(theirs.written(1)) == (one == other)


@pytest.mark.parametrize("other", ["dc2", "dc2-a-b", "dc2-a-20270115T080000.250000Z-000001"])
def test_an_agent_whose_name_begins_alike_is_another(other: str) -> None:
    assert not FileNames.of("dc2-a", STARTED).owns(FileNames.of(other, STARTED).written(1))
    assert not FileNames.of(other, STARTED).owns(FileNames.of("dc2-a", STARTED).written(1))


@pytest.mark.parametrize("long", ["x" * 255, "ü" * 127])
def test_a_long_name_fits_and_stays_another(long: str) -> None:
    assert len(FileNames.of(long, STARTED).written(1)) <= 255
    assert safe(long) != safe(long[:-1])


def test_nothing_else_is_a_file_of_the_agent() -> None:
    ours = FileNames.of("a", STARTED)
    for name in ("a", "a.jsonl", "a-1-2.jsonl", ours.written(1) + "~", "notes.txt"):
        assert not ours.owns(name)
    assert ours.written(1).endswith(WRITTEN)


@pytest.mark.parametrize(
    ("name", "expected"), [("date=2027-01-15", date(2027, 1, 15)), ("date=2027-02-30", None), ("2027-01-15", None)]
)
def test_the_day_of_a_directory(name: str, expected: date | None) -> None:
    assert day_of(name) == expected
