"""The thread that writes: on a disk that hangs, on one that refuses, and when the agent stops."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.core.settings import StatusExportSettings
from agent.status.export.files import ExportFiles, Line
from agent.status.export.names import FileNames
from agent.status.export.pump import MOST_SAMPLES_WAITING, MOST_WAITING, Pump
from tests.lab.waiting import eventually
from tests.unit.status.export.reading import events, finished, numbers, unfinished
from tests.unit.status.export.writing import STARTED, TODAY, Clock, lines, prepared

PATIENCE = 10.0
LINE = 1024 * 1024


class Files(ExportFiles):
    def __init__(self, directory: Path) -> None:
        super().__init__(StatusExportSettings(str(directory)), FileNames.of("dc2-a", STARTED), clock=Clock())


class Counting(Files):
    times_written = 0

    def write(self, lines: Sequence[Line]) -> None:
        self.times_written += 1
        super().write(lines)


class Hanging(Files):
    """On a disk that answers when a test lets it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.asked = threading.Event()
        self.answers = threading.Event()

    def write(self, lines: Sequence[Line]) -> None:
        self.asked.set()
        self.answers.wait()
        super().write(lines)


@pytest.fixture
def hanging(tmp_path: Path) -> Hanging:
    files = Hanging(tmp_path)
    files.prepare(TODAY)
    return files


async def test_what_is_put_is_written_without_waiting_for_more(tmp_path: Path) -> None:
    pump = Pump(prepared(tmp_path), clock=Clock())
    pump.start()
    pump.put(lines([1]))
    [part] = unfinished(tmp_path)
    eventually(lambda: numbers(part) == [1], what="the line is written", ignoring=AssertionError)
    pump.put(lines([2]))
    await pump.close(PATIENCE)
    assert numbers(*finished(tmp_path)) == [1, 2]
    assert pump.dropped == 0


async def test_a_disk_that_hangs_costs_events_and_no_time(hanging: Hanging, tmp_path: Path) -> None:
    pump = Pump(hanging, clock=Clock())
    pump.start()
    with capture_logs() as logs:
        pump.put(lines([0]))
        hanging.asked.wait(PATIENCE)
        begun = time.process_time()
        for seq in range(1, 20):
            pump.put(lines([seq], size=LINE, recurs=True))
        for seq in range(20, 40):
            pump.put(lines([seq], size=LINE))
        assert time.process_time() - begun < 3
        room = MOST_WAITING // LINE - 1
        samples = MOST_SAMPLES_WAITING // LINE - 1
        assert pump.dropped == 39 - room
        hanging.answers.set()
        await pump.close(PATIENCE)
    kept = [0, *range(1, samples + 1), *range(20, 20 + room - samples)]
    assert numbers(*finished(tmp_path)) == kept
    assert [entry["event"].partition(": ")[2] for entry in logs] == ["events are dropped", "events are kept again"]
    assert logs[0]["error"].endswith(": the disk does not keep up")


async def test_what_is_written_leaves_its_room_to_what_follows(tmp_path: Path) -> None:
    files = Counting(tmp_path)
    files.prepare(TODAY)
    pump = Pump(files, clock=Clock())
    pump.start()
    for seq in range(2 * MOST_WAITING // LINE):
        pump.put(lines([seq], size=LINE))
        eventually(lambda seq=seq: files.times_written > seq, what="the line is being written")  # type: ignore[misc]
    await pump.close(PATIENCE)
    assert pump.dropped == 0


async def test_a_disk_that_hangs_does_not_keep_the_agent_from_stopping(hanging: Hanging) -> None:
    pump = Pump(hanging, clock=Clock())
    pump.start()
    pump.put(lines([1]))
    with capture_logs() as logs:
        await pump.close(0.05)
    assert [entry["event"] for entry in logs] == ["status export: the disk does not answer, the last events are lost"]
    hanging.answers.set()


async def test_trouble_is_told_once_and_so_is_its_end(tmp_path: Path) -> None:
    directory, clock = tmp_path / "status", Clock()
    files = Counting(directory)
    files.prepare(TODAY)
    pump = Pump(files, clock=clock)
    pump.start()
    with capture_logs() as logs:
        for _ in range(4):
            shutil.rmtree(directory)
            directory.write_text("in the way")
            for _ in range(3):
                await_dropped(pump)
                written = files.times_written
                pump.put([])
                eventually(lambda: files.times_written > written, what="nothing is written, which is no sign of room")  # noqa: B023
            directory.unlink()
            pump.put(lines([1]))
            eventually(
                lambda: unfinished(directory) and events(*unfinished(directory)),
                what="it is kept",
                ignoring=AssertionError,  # of a line that is only begun
            )
            clock.now += 25
        await pump.close(PATIENCE)
    dropped, kept = "status export: events are dropped", "status export: events are kept again"
    assert [entry["event"] for entry in logs] == [dropped, kept, dropped, kept]
    assert str(directory) in logs[0]["error"]
    assert logs[1]["dropped"] == 3


def await_dropped(pump: Pump) -> None:
    before = pump.dropped
    pump.put(lines([0]))
    eventually(lambda: pump.dropped > before, what="the event is dropped")
