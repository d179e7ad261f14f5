"""Decides when to read the definitions again: on a changed file, SIGHUP, an event of the broker, or the next poll.

Why: docs/decisions/0027-additions-at-once.md, docs/decisions/0030-removal-waits.md
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from agent.amqp.broker_events import BrokerEvent
from agent.core.rules.names import PROMOTED
from agent.errors import TransientError
from agent.tasks import run_until_first

# The broker's parameters that matter; others change with every exchange that is deleted.
COMPONENTS = frozenset({"federation-upstream", "federation-upstream-set", "shovel"})
GLOBAL_COMPONENT, GLOBAL_NAMES = "global", frozenset({"federation-agent", "cluster_name", PROMOTED})

FILE_INTERVAL = 1.0
FILE_INTERVAL_CHANGING = 0.5  # after a change was found, until it is complete
NEVER_WHOLE = 60.0  # files that have kept changing for this long are reported
POLL_WITH_EVENTS = 30.0
POLL_ALONE = 2.0
SETTLE = 0.2
BRIEFLY = 0.01  # after an event that only adds, where none has come for a while
QUIET = 1.0
LONGEST_REST = 5.0
LISTEN_AGAIN = 5.0
MOST_EXCHANGES = 1_000  # between two reloads
ASK_AGAIN = 60.0  # without events, how often to try again
LOOKS = 3  # consecutive checks of files with the same result


class ReloadCause(StrEnum):
    START = "start"
    FILE = "file"
    HANGUP = "hangup"
    EVENT = "event"
    POLL = "poll"


ADDING = (".created", ".set")
AT_ONCE = frozenset({ReloadCause.START, ReloadCause.HANGUP})  # a user waits for these

Reload: TypeAlias = Callable[[frozenset[ReloadCause]], Awaitable[None]]
# A context with the events, or None if the broker sends none; it is entered again when they end.
EventSource: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncIterator[BrokerEvent] | None]]


class Defining:
    """The exchanges whose links unread changes may define."""

    def __init__(self) -> None:
        self._are_all = False
        self._exchanges: set[tuple[str, str]] = set()

    def __contains__(self, exchange: tuple[str, str]) -> bool:
        return self._are_all or exchange in self._exchanges

    def add(self, event: BrokerEvent) -> None:
        """Note an event. Programs may declare queues and exchanges all the time: an event of an exchange counts for
        that exchange only, and one of a queue for none, since links of queues have nothing to lose upstream. Any other
        counts for all exchanges."""
        kind, _, _ = event.name.partition(".")
        name = event.fields.get("name")
        if kind == "exchange" and event.vhost is not None and isinstance(name, str):
            self._exchanges.add((event.vhost, name))
        elif kind != "queue":
            self.add_all()
        if len(self._exchanges) > MOST_EXCHANGES:
            self.add_all()

    def add_all(self) -> None:
        self._are_all = True
        self._exchanges.clear()


Signature: TypeAlias = tuple[int, int, int, int, int] | None
Signatures: TypeAlias = dict[str, Signature]


class WholeFiles:
    """Decides when a change of files is complete, from their current signatures and those of the last read: a file that
    is still being written, or missing for a moment, doesn't count yet."""

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


class Watcher:
    """Calls `reload` at the start and after every change, never concurrently, and only a few times for many changes. A
    change of files counts once several checks found them unchanged, so that a slow writer can finish. On SIGHUP they
    are read at once. `files` is called again each time, because the files that a document names may change with it. An
    exception in `reload` or in `events` goes to `on_error`, and watching continues.
    """

    def __init__(
        self,
        reload: Reload,
        *,
        on_error: Callable[[Exception], None],
        files: Callable[[], Iterable[str]] = tuple,
        events: EventSource | None = None,
        poll: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._reload = reload
        self._on_error = on_error
        self._files = files
        self._events = events
        self._poll = poll
        self._clock = clock
        self._sleep = sleep
        self._causes: set[ReloadCause] = set()
        self._adds = True  # whether all that was notified only adds something
        self._may_define = Defining()
        self._wanted = asyncio.Event()
        self._whole = WholeFiles()
        self._changing_since: float | None = None
        self._hearing = False
        self._failed = False
        self._reloading = False
        self._reloaded_at = clock()
        self._took = 0.0

    def has_unread(self, vhost: str, exchange: str) -> bool:
        """True if something has changed, or may have, that may define a link of the exchange again, and isn't in force
        yet."""
        return self._whole.has_unread or self._reloading or (vhost, exchange) in self._may_define

    def notify(self, cause: ReloadCause) -> None:
        """Requests that the definitions are read again soon."""
        if cause is not ReloadCause.POLL:
            self._may_define.add_all()
        self._want(cause, adds=False)

    def _want(self, cause: ReloadCause, *, adds: bool) -> None:
        """`adds`: nothing may be missing for a moment, because it is being replaced."""
        self._causes.add(cause)
        self._adds = self._adds and adds
        self._wanted.set()

    def handle_hangup(self) -> None:
        """Read the definitions on SIGHUP from now on, also while `run` is not running. Needs the main thread."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.notify, ReloadCause.HANGUP)

    async def run(self) -> None:
        """Watches until cancelled. It may be called again after an error: then it begins with a reload."""
        self.notify(ReloadCause.START)
        parts = [self._reload_when_wanted(), self._look_and_poll()]
        if self._events is not None:
            parts.append(self._listen(self._events))
        await run_until_first(*parts)

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            if (rest := self._rest) > 0:
                await self._sleep(rest)
            self._wanted.clear()
            causes, self._causes, self._adds = frozenset(self._causes), set(), True
            self._may_define, self._reloading = Defining(), True
            try:
                await self._reload_guarded(causes)
            finally:
                self._reloading = False

    @property
    def _rest(self) -> float:
        """Seconds to wait before the next reload: changes arrive in bursts; and a reload that takes long leaves as much
        time for other work."""
        since = self._clock() - self._reloaded_at
        settling = 0.0 if self._causes <= AT_ONCE else BRIEFLY if self._adds and since >= QUIET else SETTLE
        return max(settling, min(self._took, LONGEST_REST) - since)

    async def _reload_guarded(self, causes: frozenset[ReloadCause]) -> None:
        begun = self._clock()
        # Taken before reading, so that changes during the read are noticed.
        found = await self._signatures()
        if causes & AT_ONCE and self._whole.differ(found):
            causes |= {ReloadCause.FILE}
        elif not causes & AT_ONCE and not self._whole.is_whole(found):
            causes -= {ReloadCause.FILE}  # it has changed again since the last check
        if not causes:
            return
        if causes & {*AT_ONCE, ReloadCause.FILE}:
            self._whole.take(found)
        try:
            await self._reload(causes)
        except Exception as error:  # noqa: BLE001 - a task's edge: watching must outlive any bad document
            self._failed = True
            self._on_error(error)
        else:
            self._failed = False
        self._whole.learn(await self._signatures())
        self._reloaded_at = self._clock()
        self._took = self._reloaded_at - begun

    async def _look_and_poll(self) -> None:
        while True:
            await self._sleep(FILE_INTERVAL_CHANGING if self._whole.has_unread else FILE_INTERVAL)
            if self._whole.look(await self._signatures()):
                self.notify(ReloadCause.FILE)
            self._report_changing()
            if self._poll and not self._reloading and self._is_time():
                self.notify(ReloadCause.POLL)

    def _is_time(self) -> bool:
        interval = POLL_WITH_EVENTS if self._hearing and not self._failed else POLL_ALONE
        return self._clock() - self._reloaded_at >= interval

    def _report_changing(self) -> None:
        """Report files that never stay the same, since they keep all of them from being read."""
        if not self._whole.is_changing:
            self._changing_since = None
        elif self._changing_since is None:
            self._changing_since = self._clock()
        elif self._clock() - self._changing_since >= NEVER_WHOLE:
            self._changing_since = self._clock()
            self._on_error(
                TransientError(
                    f"files of the configuration have kept changing for {NEVER_WHOLE:.0f} s, so they aren't read; they "
                    "will be when they stay the same for a second, or at once on SIGHUP"
                )
            )

    async def _signatures(self) -> Signatures:
        files = tuple(self._files())
        if not files:
            return {}
        return await asyncio.to_thread(lambda: {path: signature(path) for path in files})

    async def _listen(self, source: EventSource) -> None:
        while True:
            rest = ASK_AGAIN
            try:
                await self._hear(source)
            except Exception as error:  # noqa: BLE001 - a task's edge: without events there is polling
                self._on_error(error)
                rest = LISTEN_AGAIN
            finally:
                self._hearing = False
            await self._sleep(rest)

    async def _hear(self, source: EventSource) -> None:
        async with source() as events:
            if events is None:
                return
            self._hearing = True
            self.notify(ReloadCause.EVENT)  # for changes while not subscribed
            async for event in events:
                if concerns(event):
                    self._may_define.add(event)
                    self._want(ReloadCause.EVENT, adds=event.name.endswith(ADDING))


def concerns(event: BrokerEvent) -> bool:
    """True if the event may change which links there are."""
    kind, _, _ = event.name.partition(".")
    if kind != "parameter":
        return kind in {"policy", "exchange", "queue", "vhost"}
    component = event.fields.get("component")
    return component in COMPONENTS or (component == GLOBAL_COMPONENT and event.fields.get("name") in GLOBAL_NAMES)
