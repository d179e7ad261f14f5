"""The exporter in a time that passes when a test says so; its thread and its files are real."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.amqp.data.splice import Counts
from agent.core.links import lifecycle
from agent.core.links.lifecycle import Failed, LinkState
from agent.core.migration.links import consumer_tag
from agent.core.rules.names import STANDBY
from agent.core.settings import Fsync, StatusExportSettings
from agent.core.standby.settings import StandbySettings
from agent.core.standby.status import StandbyStatus
from agent.errors import CannotStartError, Failure, FailureKind, Place, Side
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.export.exporter import MOST_SAMPLES_WAITING, MOST_WAITING, Exporter, WriterThread
from agent.status.export.files import EventFiles, ExportLine, FileNames
from tests.lab.waiting import eventually, eventually_async
from tests.unit.definitions.virtual_time import VirtualTime
from tests.unit.status.export.reading import events, finished, numbers, unfinished
from tests.unit.status.export.writing import STARTED, TODAY, Clock, lines, prepared
from tests.unit.status.test_board import LINK, RUNNING

Event = dict[str, Any]


class Exported:
    """An exporter of a board in virtual time, and what it has written when it has stopped."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.time = VirtualTime()
        self.board = Board(lambda: STARTED + self.time.now, "dc2-a")
        self.exporter = Exporter(
            StatusExportSettings(str(directory), fsync=Fsync.NEVER, **settings),
            self.board,
            clock=self.time.clock,
            sleep=self.time.sleep,
        )

    def put(self, count: int = 1) -> list[str]:
        links = [replace(LINK, id=f"{number * 0x01234567:08x}") for number in range(1, count + 1)]
        for link in links:
            self.board.put(link, LinkState(), Counts(), Gauges)
        return [link.id for link in links]

    def put_of_standby(self, *, backlog: int) -> None:
        link = replace(LINK, id="0000000f", policy=STANDBY)
        self.board.put(link, RUNNING, Counts(), lambda: Gauges(backlog=backlog))
        self.board[link.id].note_backlog(self.board.clock())

    async def stop(self) -> list[Event]:
        await self.exporter.stop()
        assert unfinished(self.directory) == []
        return events(*finished(self.directory))


def of(found: list[Event], **values: object) -> list[Event]:
    return [event for event in found if all(event[name] == value for name, value in values.items())]


def at(found: list[Event]) -> list[str]:
    return [event["ts"][14:23] for event in found]


async def test_a_run_begins_beats_and_ends(tmp_path: Path) -> None:
    exported = Exported(tmp_path, sample_interval=10.0)
    await exported.exporter.start()
    await exported.time.advance(35)
    exported.board.cluster = "rabbit@dc2"
    found = await exported.stop()
    assert [event["status"] for event in of(found, type="agent")] == ["started", *["heartbeat"] * 3, "stopped"]
    assert at(found) == ["00:00.250", "00:10.250", "00:20.250", "00:30.250", "00:35.250"]
    assert {event["interval"] for event in found} == {10.0}
    assert (found[0]["cluster"], found[-1]["cluster"]) == (None, "rabbit@dc2")


async def test_a_standby_is_told_of_each_interval_once_its_cluster_is_known(tmp_path: Path) -> None:
    exported = Exported(tmp_path, sample_interval=10.0)
    await exported.exporter.start()
    exported.board.standby = standby = StandbyStatus(StandbySettings("origin", {}, None, None, None, Place("f")))
    await exported.time.advance(15)
    exported.board.cluster = "rabbit@dc2"
    await exported.time.advance(10)
    standby.followed_at = standby.depths_at = exported.board.clock() + 5
    exported.put_of_standby(backlog=4)
    await exported.time.advance(10)
    standby.promoted_at = "2027-01-15T08:00:33Z"
    found = of(await exported.stop(), type="standby")
    assert at(found) == ["00:20.250", "00:30.250", "00:35.250"]
    assert [event["status"] for event in found] == ["not_in_step", "in_step", "promoted"]
    assert [event["error"] for event in found] == [
        "definitions were followed not yet; queues were looked at not yet",
        None,
        "it was promoted at 2027-01-15T08:00:33Z",
    ]
    assert {(event["upstream"], event["link"]) for event in found} == {("origin", None)}


async def test_a_move_is_shown_by_its_links_once_its_source_is_known(tmp_path: Path) -> None:
    exported = Exported(tmp_path, sample_interval=10.0)
    exported.board.cluster = "new"
    await exported.exporter.start()
    moving = replace(LINK, id="0000000e", settings=replace(LINK.settings, consumer_tag=consumer_tag("new")))
    for link in (LINK, moving):
        gauges = Gauges(upstream_cluster="old")
        exported.board.put(link, RUNNING, Counts(), lambda gauges=gauges: gauges)  # type: ignore[misc]
    await exported.time.advance(10)
    exported.board[moving.id].gauges().upstream_cluster = None
    found = await exported.stop()
    assert [event["moves_from"] for event in of(found, link=moving.id)] == ["old", "old", None]
    assert {event["moves_from"] for event in of(found, link=LINK.id)} == {None}


async def test_every_change_of_status_is_told_also_of_one_moment(tmp_path: Path) -> None:
    exported = Exported(tmp_path)
    await exported.exporter.start()
    [link] = exported.put()
    state = LinkState()
    for event in (
        lifecycle.Signal.START,
        lifecycle.Signal.OPENED,
        Failed("connection lost", Failure(FailureKind.LOST, Side.DOWNSTREAM)),
        lifecycle.Signal.CLOSED,
        lifecycle.Signal.RETRY_DUE,
        Failed("connection refused", Failure(FailureKind.UNREACHABLE, Side.UPSTREAM)),
        lifecycle.Pause(),
    ):
        state, _ = lifecycle.step(state, event)
        exported.board.changed(link, state)
    found = of(await exported.stop(), type="transition")
    assert [(event["previous"], event["status"], event["reason"], event["error"]) for event in found] == [
        (None, "starting", "appeared", None),
        ("starting", "running", "opened", None),
        ("running", "backoff", "downstream_lost", "connection lost"),
        ("backoff", "paused", "paused", None),
    ]


async def test_a_transition_is_in_the_file_at_once(tmp_path: Path) -> None:
    exported = Exported(tmp_path)
    await exported.exporter.start()
    [link] = exported.put()
    exported.board.changed(link, RUNNING)
    await exported.time.turn()
    [part] = unfinished(tmp_path)
    eventually(lambda: events(part)[-1]["status"] == "running", what="it is written", ignoring=AssertionError)
    await exported.stop()


async def test_each_link_is_sampled_once_in_an_interval_and_not_all_at_once(tmp_path: Path) -> None:
    exported = Exported(tmp_path, sample_interval=10.0)
    await exported.exporter.start()
    links = exported.put(100)
    await exported.time.advance(20.1)
    exported.board.gone(links[0])
    found = of(await exported.stop(), type="sample")
    regular = [event for event in found if event["ts"] < "2027-01-15T08:00:20.3"]
    assert {link: len(of(regular, link=link)) for link in links} == dict.fromkeys(links, 2)
    assert max(len(of(regular, ts=moment)) for moment in {event["ts"] for event in regular}) <= 15
    for link in links:
        first, second, *_ = (float(text[3:]) for text in at(of(found, link=link)))
        assert second - first == pytest.approx(10)
    assert {event["link"] for event in found if event not in regular} == set(links[1:])
    assert {event["reason"] for event in found} == {"appeared"}


async def test_files_are_finished_in_time_also_where_nothing_happens(tmp_path: Path) -> None:
    exported = Exported(tmp_path, sample_interval=100.0, rotate=5.0)
    await exported.exporter.start()
    await until_written(exported)
    await exported.time.advance(5.5)
    eventually(lambda: len(finished(tmp_path)) == 1, what="the file is finished")
    assert [event["status"] for event in events(*finished(tmp_path))] == ["started"]
    await exported.stop()


async def test_the_board_shows_what_could_not_be_kept(tmp_path: Path) -> None:
    directory = tmp_path / "status"
    exported = Exported(directory, sample_interval=1.0)
    await exported.exporter.start()
    await until_written(exported)
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()
    directory.write_text("in the way")
    [link] = exported.put()
    exported.board.changed(link, RUNNING)

    async def are_dropped() -> bool:
        await exported.time.advance(0.01)
        return exported.board.export_dropped >= 3

    await eventually_async(are_dropped, 60, what="they are dropped")
    directory.unlink()
    found = await exported.stop()
    assert [event["status"] for event in found] == ["running", "stopped"]
    assert found[0]["seq"] > 3


async def test_a_directory_that_can_not_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    exported = Exported(tmp_path / "file" / "status")
    with pytest.raises(CannotStartError, match=r"status-export\.directory .*file/status: Not a directory .*; let the"):
        await exported.exporter.start()


async def until_written(exported: Exported) -> None:
    await exported.time.turn()
    written: Callable[[], object] = lambda: [events(part) for part in unfinished(exported.directory)]  # noqa: E731
    eventually(written, what="the first event is written", ignoring=AssertionError)


PATIENCE = 10.0
LINE = 1024 * 1024


class Files(EventFiles):
    def __init__(self, directory: Path) -> None:
        super().__init__(StatusExportSettings(str(directory)), FileNames.of("dc2-a", STARTED), clock=Clock())


class Counting(Files):
    times_written = 0

    def write(self, lines: Sequence[ExportLine]) -> None:
        self.times_written += 1
        super().write(lines)


class Hanging(Files):
    """On a disk that answers when a test lets it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.asked = threading.Event()
        self.answers = threading.Event()

    def write(self, lines: Sequence[ExportLine]) -> None:
        self.asked.set()
        self.answers.wait()
        super().write(lines)


@pytest.fixture
def hanging(tmp_path: Path) -> Hanging:
    files = Hanging(tmp_path)
    files.prepare(TODAY)
    return files


async def test_what_is_put_is_written_without_waiting_for_more(tmp_path: Path) -> None:
    pump = WriterThread(prepared(tmp_path), clock=Clock())
    pump.start()
    pump.put(lines([1]))
    [part] = unfinished(tmp_path)
    eventually(lambda: numbers(part) == [1], what="the line is written", ignoring=AssertionError)
    pump.put(lines([2]))
    await pump.close(PATIENCE)
    assert numbers(*finished(tmp_path)) == [1, 2]
    assert pump.dropped == 0


async def test_a_disk_that_hangs_costs_events_and_no_time(hanging: Hanging, tmp_path: Path) -> None:
    pump = WriterThread(hanging, clock=Clock())
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
    pump = WriterThread(files, clock=Clock())
    pump.start()
    for seq in range(2 * MOST_WAITING // LINE):
        pump.put(lines([seq], size=LINE))
        eventually(lambda seq=seq: files.times_written > seq, what="the line is being written")  # type: ignore[misc]
    await pump.close(PATIENCE)
    assert pump.dropped == 0


async def test_a_disk_that_hangs_does_not_keep_the_agent_from_stopping(hanging: Hanging) -> None:
    pump = WriterThread(hanging, clock=Clock())
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
    pump = WriterThread(files, clock=clock)
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


def await_dropped(pump: WriterThread) -> None:
    before = pump.dropped
    pump.put(lines([0]))
    eventually(lambda: pump.dropped > before, what="the event is dropped")
