"""Whatever happens between an agent's runs: each line is whole, numbered once, in its day, and only torn tails go."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent.amqp.data.splice import Counts
from agent.core.export_event import FIELDS, AgentStatus
from agent.core.links.lifecycle import LinkState, Status
from agent.core.settings import Fsync, StatusExportSettings
from agent.status.board import Board
from agent.status.entry import BoardEntry, Gauges
from agent.status.export.exporter import ExportEvents, day_at
from agent.status.export.files import EventFiles, ExportLine, FileNames
from tests.unit.status.export.reading import events, finished, unfinished
from tests.unit.status.export.writing import STARTED, Clock, crash
from tests.unit.status.test_board import LINK

DAY = 86_400
Key = tuple[str, int]
"""An event's run, which the tests tell by the group, and its number."""


class Course(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.made = tempfile.TemporaryDirectory()
        self.directory = Path(self.made.name)
        self.wall, self.clock = Clock(), Clock()
        self.wall.now = STARTED
        self.runs = 0
        self.kept: set[Key] = set()
        self.start()

    def start(self) -> None:
        self.runs += 1
        self.board = Board(self.wall, "dc2-a", group=f"run {self.runs}")
        self.board.put(LINK, LinkState(), Counts(), Gauges)
        self.events = ExportEvents(self.board)
        names = FileNames.of(self.board.owner, self.wall.now)
        self.files = EventFiles(StatusExportSettings(str(self.directory), fsync=Fsync.NEVER), names, clock=self.clock)
        self.files.prepare(day_at(self.wall.now))
        self.keep(self.events.of_agent(AgentStatus.STARTED, 10))

    @property
    def entry(self) -> BoardEntry:
        return self.board[LINK.id]

    def keep(self, *lines: ExportLine) -> None:
        self.files.write(lines)
        self.kept |= keys(b"".join(line.text for line in lines))

    @rule(statuses=st.lists(st.sampled_from(Status), max_size=5))
    def change(self, statuses: list[Status]) -> None:
        self.keep(*(self.events.transition(self.entry, status) for status in statuses))

    @rule(count=st.integers(1, 20), pause=st.floats(0, 2 * DAY))
    def sample(self, count: int, pause: float) -> None:
        """Samples of one batch may tell of several days."""
        lines = []
        for _ in range(count):
            lines.append(self.events.sample(self.entry))
            self.wall.now += pause / count
        self.keep(*lines)

    @rule(seconds=st.floats(-2 * DAY, 2 * DAY))
    def step_the_time_of_day(self, seconds: float) -> None:
        self.wall.now += seconds

    @rule(seconds=st.floats(0, 120))
    def pass_time(self, seconds: float) -> None:
        self.wall.now += seconds
        self.clock.now += seconds
        self.files.write([])

    @rule()
    def stop(self) -> None:
        self.keep(self.events.of_agent(AgentStatus.STOPPED, 10))
        self.files.close()
        self.start()

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """From any byte on, what was written last has not reached the disk."""
        crash(self.directory)
        for part in unfinished(self.directory):
            text = part.read_bytes()
            left = text[: data.draw(st.integers(0, len(text)))]
            part.write_bytes(left)
            self.kept -= keys(text[left.rfind(b"\n") + 1 :])
        self.start()

    @invariant()
    def each_line_is_whole_and_in_its_place(self) -> None:
        found: list[Key] = []
        for path in [*finished(self.directory), *unfinished(self.directory)]:
            of_file = [json.loads(line) for line in path.read_bytes().splitlines()]
            assert all(list(event) == list(FIELDS) for event in of_file)
            assert {event["ts"][:10] for event in of_file} <= {path.parent.name.removeprefix("date=")}
            assert [event["seq"] for event in of_file] == sorted(event["seq"] for event in of_file)
            found += map(key_of, of_file)
        assert len(found) == len(set(found))
        assert set(found) == self.kept

    def teardown(self) -> None:
        self.files.close()
        assert unfinished(self.directory) == []
        assert set(map(key_of, events(*finished(self.directory)))) == self.kept
        self.made.cleanup()


def key_of(event: dict[str, Any]) -> Key:
    return event["group"], event["seq"]


def keys(text: bytes) -> set[Key]:
    return {key_of(json.loads(line)) for line in text.splitlines()}


Course.TestCase.settings = settings(max_examples=30, stateful_step_count=20)
TestCourse = Course.TestCase
