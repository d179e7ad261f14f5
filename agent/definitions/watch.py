"""When to read the definitions again: a file changed, SIGHUP, the broker told so, or it is simply time."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from agent.core.events import BrokerEvent

# What of the broker's own parameters concerns us; others come and go with every exchange that is deleted.
COMPONENTS = frozenset({"federation-upstream", "federation-upstream-set", "shovel"})
GLOBAL_COMPONENT, GLOBAL_NAMES = "global", frozenset({"federation-agent", "cluster_name"})

FILE_INTERVAL = 1.0
POLL_WITH_EVENTS = 30.0
POLL_ALONE = 2.0
SETTLE = 0.2
LONGEST_REST = 5.0
LISTEN_AGAIN = 5.0
ASK_AGAIN = 60.0  # where a broker tells nothing, whether it does now


class Cause(StrEnum):
    START = "start"
    FILE = "file"
    HANGUP = "hangup"
    EVENT = "event"
    POLL = "poll"


AT_ONCE = frozenset({Cause.START, Cause.HANGUP})  # somebody waits for these

Reload: TypeAlias = Callable[[frozenset[Cause]], Awaitable[None]]
# Entered, it gives the events, or None where the broker tells nothing; it is entered again when they end.
EventSource: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncIterator[BrokerEvent] | None]]
Signature: TypeAlias = tuple[int, int, int, int, int] | None


class Watcher:
    """Calls `reload` at the start and after every change, never twice at once, and few times for many changes.

    `files` is asked again each time, because what a document names may change with it. An exception in
    `reload` or in `events` goes to `on_error`, and watching goes on.
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
        self._causes: set[Cause] = set()
        self._wanted = asyncio.Event()
        self._seen: dict[str, Signature] = {}
        self._hearing = False
        self._failed = False
        self._reloading = False
        self._reloaded_at = clock()
        self._took = 0.0

    def notify(self, cause: Cause) -> None:
        """Have the definitions read again soon."""
        self._causes.add(cause)
        self._wanted.set()

    async def run(self, *, hangup: bool = True) -> None:
        """Watches until cancelled; SIGHUP needs the main thread."""
        loop = asyncio.get_running_loop()
        if hangup:
            loop.add_signal_handler(signal.SIGHUP, self.notify, Cause.HANGUP)
        self.notify(Cause.START)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reload_when_wanted())
                group.create_task(self._look_and_poll())
                if self._events is not None:
                    group.create_task(self._listen(self._events))
        finally:
            if hangup:
                loop.remove_signal_handler(signal.SIGHUP)

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            if (rest := self._rest) > 0:
                await self._sleep(rest)
            self._wanted.clear()
            causes, self._causes = frozenset(self._causes), set()
            self._reloading = True
            await self._reload_guarded(causes)
            self._reloading = False

    @property
    def _rest(self) -> float:
        """Changes come in bursts; and a reload that takes long leaves as much time for other work."""
        settling = 0.0 if self._causes <= AT_ONCE else SETTLE
        left = min(self._took, LONGEST_REST) - (self._clock() - self._reloaded_at)
        return max(settling, left)

    async def _reload_guarded(self, causes: frozenset[Cause]) -> None:
        begun = self._clock()
        # Taken before reading, so that what changes meanwhile is seen as a change.
        found = await self._signatures()
        if self._differ(found):  # since the last look: whatever caused this, the files are to be read
            causes |= {Cause.FILE}
        self._seen = found
        try:
            await self._reload(causes)
        except Exception as error:  # noqa: BLE001 - a task's edge: watching must outlive any bad document
            self._failed = True
            self._on_error(error)
        else:
            self._failed = False
        for path, signature in (await self._signatures()).items():
            self._seen.setdefault(path, signature)
        self._reloaded_at = self._clock()
        self._took = self._reloaded_at - begun

    async def _look_and_poll(self) -> None:
        while True:
            await self._sleep(FILE_INTERVAL)
            if await self._changed():
                self.notify(Cause.FILE)
            if self._poll and not self._reloading and self._is_time():
                self.notify(Cause.POLL)

    def _is_time(self) -> bool:
        interval = POLL_WITH_EVENTS if self._hearing and not self._failed else POLL_ALONE
        return self._clock() - self._reloaded_at >= interval

    async def _changed(self) -> bool:
        seen = self._seen
        found = await self._signatures()
        return seen is self._seen and self._differ(found)

    def _differ(self, found: dict[str, Signature]) -> bool:
        seen = self._seen
        return any(path in seen and seen[path] != signature for path, signature in found.items())

    async def _signatures(self) -> dict[str, Signature]:
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
            self.notify(Cause.EVENT)  # for those that came while nobody listened
            async for event in events:
                if concerns(event):
                    self.notify(Cause.EVENT)


def concerns(event: BrokerEvent) -> bool:
    """Whether the event may change which links there are."""
    kind, _, _ = event.name.partition(".")
    if kind != "parameter":
        return kind in {"policy", "exchange", "queue", "vhost"}
    component = event.fields.get("component")
    return component in COMPONENTS or (component == GLOBAL_COMPONENT and event.fields.get("name") in GLOBAL_NAMES)


def signature(path: str) -> Signature:
    """What changes when a file is written, replaced, or when a link on the way to it is turned; None: no file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
