"""Exports the board: every change of a link's status at once, and regular samples of all links.

Why: docs/decisions/0053-export-thread.md
"""

from __future__ import annotations

import asyncio
import errno
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from typing import Any, Final

import structlog

from agent.core.export_event import FIELDS, SCHEMA, AgentStatus, EventType, StandbyVerdict
from agent.core.links.lifecycle import LinkState, Status
from agent.core.model import Link, QueueSource, ShovelLink
from agent.core.settings import StatusExportSettings
from agent.core.text import rfc3339
from agent.errors import CannotStartError
from agent.slices import in_slices
from agent.status.board import Board
from agent.status.entry import BoardEntry, Gauges
from agent.status.export.files import EventFiles, ExportLine, FileNames
from agent.status.moves import is_of_move
from agent.status.standby import standby_in_short
from agent.status.views import link_view
from agent.tasks import GuardedTasks

TICK: Final = 0.5  # links are sampled a few at a time, so that messages don't wait
STOP_PATIENCE: Final = 5.0
END_PATIENCE: Final = 2.0  # for a task that only has to notice its end
TASK: Final = "status export"
MOST_WAITING: Final = 8 * 1024 * 1024
MOST_SAMPLES_WAITING: Final = 6 * 1024 * 1024  # the rest is for events that aren't repeated
QUIET: Final = 60.0
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOTHING: Final = dict.fromkeys(FIELDS)
_OF_VIEW: Final = (
    "kind", "vhost", "upstream", "uri", "status", "error", "failure",
    "forwarded", "bytes", "redelivered", "dropped", "quarantined", "returned", "reconnects",
    "backlog", "in_flight", "oldest_unconfirmed_seconds", "lag_seconds", "last_probe", "bindings",
)  # fmt: skip
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))

log = structlog.get_logger()


class Exporter:
    """`clock` is monotonic; the time of day comes from the board."""

    def __init__(
        self,
        settings: StatusExportSettings,
        board: Board,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._board = board
        self._clock = clock
        self._sleep = sleep
        self._events = ExportEvents(board)
        self._files = EventFiles(settings, FileNames.of(board.owner, board.clock()), clock=clock)
        self._writer = WriterThread(self._files, clock=clock)
        self._pending: list[ExportLine] = []
        self._tasks = GuardedTasks(board.errors, sleep=sleep)

    async def start(self) -> None:
        """Must be called before there is any link."""
        try:
            await asyncio.to_thread(self._files.prepare, day_at(self._board.clock()))
        except OSError as error:
            if error.errno not in _FULL:  # a full disk drops events until it has room again
                raise CannotStartError(
                    f"agent.status-export.directory {self._settings.directory}: {error.strerror or error}"
                    f" ({error.filename}); let the agent write there, or choose another directory"
                ) from error
        self._writer.start()
        self._put_agent(AgentStatus.STARTED)
        self._board.on_transition.append(self._put_transition)
        self._tasks.keep(TASK, self._run)

    async def stop(self) -> None:
        """Writes how all links are in the end, and finishes the file."""
        await self._tasks.end(END_PATIENCE)
        self._board.on_transition.remove(self._put_transition)
        await self._sample(self._board)
        self._put_standby()
        self._put_agent(AgentStatus.STOPPED)
        self._hand_over()
        await self._writer.close(STOP_PATIENCE)
        self._board.export_dropped = self._writer.dropped

    async def _run(self) -> None:
        """Samples each link once per interval, and writes heartbeats, until cancelled."""
        slots = max(1, round(self._settings.sample_interval / TICK))
        rest = self._settings.sample_interval / slots
        due = self._clock()
        for slot in cycle(range(slots)):
            due = max(due + rest, self._clock())
            await self._sleep(due - self._clock())
            with self._board.errors.catching(TASK):
                await self._sample(entry for entry in self._board if int(entry.link.id, 16) % slots == slot)
                if slot == slots - 1:
                    self._put_agent(AgentStatus.HEARTBEAT)
                    self._put_standby()
            self._hand_over()
            self._board.export_dropped = self._writer.dropped

    def _put_transition(self, entry: BoardEntry, before: LinkState | None) -> None:
        self._put(self._events.transition(entry, before.status if before else None))

    async def _sample(self, entries: Iterable[BoardEntry]) -> None:
        async for entry in in_slices(entries):
            self._put(self._events.sample(entry))

    def _put_agent(self, status: AgentStatus) -> None:
        self._put(self._events.of_agent(status, self._settings.sample_interval))

    def _put_standby(self) -> None:
        if (line := self._events.of_standby()) is not None:
            self._put(line)

    def _put(self, line: ExportLine) -> None:
        # Events of one turn are written together: when all links fail, messages wait for no thread.
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._pending.append(line)

    def _hand_over(self) -> None:
        lines, self._pending = self._pending, []
        self._writer.put(lines)


@dataclass
class ExportEvents:
    """The numbered events of one run as lines: one JSON object each, with every field."""

    board: Board
    _seq: int = 0

    def of_agent(self, status: AgentStatus, interval: float) -> ExportLine:
        return self._line(EventType.AGENT, {"status": status, "interval": interval})

    def of_standby(self) -> ExportLine | None:
        """None without a standby, and while its cluster's name isn't known."""
        found = standby_in_short(self.board) if self.board.cluster is not None else None
        if found is None:
            return None
        verdict = StandbyVerdict.IN_STEP if found["in_step"] else StandbyVerdict.NOT_IN_STEP
        if found["promoted"] is not None:
            verdict = StandbyVerdict.PROMOTED
        fields = {"status": verdict, "upstream": found["of"], "error": "; ".join(found["why_not"]) or None}
        return self._line(EventType.STANDBY, fields)

    def sample(self, entry: BoardEntry) -> ExportLine:
        """A regular sample; its reason is that of the last transition."""
        return self._line(EventType.SAMPLE, self._of_link(entry))

    def transition(self, entry: BoardEntry, previous: Status | None) -> ExportLine:
        return self._line(EventType.TRANSITION, self._of_link(entry) | {"previous": previous})

    def _of_link(self, entry: BoardEntry) -> dict[str, Any]:
        view: dict[str, Any] = {**link_view(self.board, entry)}
        gauges, transfer = entry.gauges(), entry.meter.transfer
        if entry.state.status is Status.REMOVING:  # the seconds left would make each sample different
            view["error"] = entry.state.error
        return {
            **{name: view[name] for name in _OF_VIEW},
            "upstream_cluster": gauges.upstream_cluster,  # of a shovel none: it may lead elsewhere
            "moves_from": _source_of_move(self.board, entry, gauges),
            "link": entry.link.id,
            "name": entry.link.name,
            "upstream_name": _source_name(entry.link),
            "reason": entry.changed_for,
            "taken": entry.meter.taken,
            "given_back": entry.meter.given_back,
            "unsettled": gauges.unsettled,
            **(asdict(gauges.upstream) if gauges.upstream.looks else {}),  # most links are never compared
            "lag_is_critical": entry.lag_is_critical,  # as noted for the view
            "blocked_seconds": round(entry.blocked_seconds, 3),
            "transfer": {"le": transfer.bounds, "count": list(transfer.cumulative), "sum": round(transfer.sum, 6)},
        }

    def _line(self, kind: EventType, fields: dict[str, Any]) -> ExportLine:
        self._seq += 1
        ts = rfc3339(self.board.clock(), digits="microseconds")
        head = {
            "schema": SCHEMA,
            "type": kind,
            "ts": ts,
            "seq": self._seq,
            "agent": self.board.owner,
            "group": self.board.group or None,
            "cluster": self.board.cluster,
        }
        text = _ENCODER.encode({**_NOTHING, **head, **fields}).encode("ascii") + b"\n"
        return ExportLine(ts[:10], text, recurs=kind in {EventType.SAMPLE, EventType.STANDBY})


def _source_name(link: Link) -> str:
    source = link.shovel.source if isinstance(link, ShovelLink) else None
    return source.queue if isinstance(source, QueueSource) else link.remote_name


def _source_of_move(board: Board, entry: BoardEntry, gauges: Gauges) -> str | None:
    """None too while its name isn't known: another agent of the group may know it."""
    found = board.source_of(entry.link, gauges) if is_of_move(entry.link) else None
    return found.name if found is not None and found.is_known else None


def day_at(seconds: float) -> str:
    return rfc3339(seconds)[:10]


class WriterThread:
    """Lines wait in a bounded queue; one thread writes them all at once. A slow or hanging disk costs events, never
    messages."""

    def __init__(self, files: EventFiles, *, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._waiting: list[ExportLine] = []
        self._size = 0  # of lines that wait or are being written
        self._refused = 0
        self._wanted = False
        self._closing = False
        self._woken = threading.Condition()
        self._is_failing = False
        self._quiet_until = clock()
        # A daemon, because the process has to end even if a disk doesn't answer.
        self._thread = threading.Thread(target=self._run, name="status export", daemon=True)

    @property
    def dropped(self) -> int:
        """The number of lines that were lost."""
        return self._refused + self._files.lost

    def start(self) -> None:
        self._thread.start()

    def put(self, lines: Sequence[ExportLine]) -> None:
        """Add lines to the queue; never waits: lines that don't fit are dropped. Files that are due are finished even
        without lines."""
        with self._woken:
            refused = sum(not self._takes(line) for line in lines)
            self._wake()
        self._refused += refused
        if refused:
            self._log_failure(f"{self._files.directory}: the disk does not keep up")

    async def close(self, patience: float) -> None:
        """Writes waiting lines and finishes the file, as far as the disk permits."""
        with self._woken:
            self._closing = True
            self._wake()
        await asyncio.to_thread(self._thread.join, patience)
        if self._thread.is_alive():
            log.error("status export: the disk does not answer, the last events are lost")

    def _takes(self, line: ExportLine) -> bool:
        size = self._size + len(line.text)
        if size > (MOST_SAMPLES_WAITING if line.recurs else MOST_WAITING):
            return False
        self._size = size
        self._waiting.append(line)
        return True

    def _wake(self) -> None:
        self._wanted = True
        self._woken.notify()

    def _run(self) -> None:
        ends = False
        while not ends:
            with self._woken:
                self._woken.wait_for(lambda: self._wanted)
                self._wanted, ends = False, self._closing
                lines, self._waiting = self._waiting, []
            self._try(partial(self._files.write, lines), len(lines))
            if ends:
                self._try(self._files.close)
            with self._woken:
                self._size -= sum(len(line.text) for line in lines)

    def _try(self, work: Callable[[], None], at_stake: int = 0) -> None:
        try:
            work()
        except OSError as error:
            self._log_failure(f"{error.filename or self._files.directory}: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 - a thread's edge: what nobody foresaw must not end the export
            self._files.lost += at_stake
            self._log_failure(f"unexpected error: {type(error).__name__}: {error}")
        else:
            if at_stake:
                self._log_recovery()

    def _log_failure(self, error: str) -> None:
        """Logs the first failure; for a disk that fails intermittently, only every few minutes."""
        if not self._is_failing and self._clock() >= self._quiet_until:
            self._is_failing, self._quiet_until = True, self._clock() + QUIET
            log.error("status export: events are dropped", error=error, dropped=self.dropped)

    def _log_recovery(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.info("status export: events are kept again", dropped=self.dropped)
