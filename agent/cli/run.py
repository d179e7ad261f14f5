"""`run`: the agent itself, until it gets a signal to stop.

Why: docs/decisions/0048-rare-collections.md
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog
import uvloop

from agent.amqp.broker_events import DEFINITION_EVENTS
from agent.cli.logs import configure_logging
from agent.cli.signals import STOPPED_WITHIN, StopDeadline
from agent.core.settings import HttpSettings, LogFormat, LogLevel, LogSettings
from agent.definitions.models.settings import listen_of
from agent.definitions.sources.load import Configuration, load_configuration
from agent.downstream.watch import ReloadCause, Watcher
from agent.errors import ConfigurationError
from agent.runtime.configuration_wait import OPTION, ConfigurationWait
from agent.runtime.expiry import TASK as EXPIRIES
from agent.runtime.expiry import watch_expiries
from agent.runtime.link_log import LOGGING_CAUSES, CauseLog
from agent.runtime.problems import WATCHING
from agent.runtime.supervisor import Supervisor
from agent.status.board import Board
from agent.status.export.exporter import Exporter
from agent.status.http.connections import raise_descriptor_limit
from agent.status.http.server import HttpServer
from agent.tasks import GuardedTasks
from agent.version import VERSION

END_PATIENCE: Final = 2.0
STANDBY_TASK: Final = "keep the standby in step"
LOOK_FOR_STANDBY: Final = 2.0
COLLECT_AFTER: Final = (5_000, 5, 1)
"""A full collection for each 75,000 objects more. A thousand links are 250,000."""
COLLECTING: Final = "collect what is old"
ALL_EVERY: Final = 3600.0
GROWN: Final = 1.25
log = structlog.get_logger()


Changed: TypeAlias = Callable[[], None]
Report: TypeAlias = Callable[[Exception], None]
Follow: TypeAlias = Callable[[Changed, Report], Coroutine[Any, Any, None]]
"""Follows what else a configuration is made of: reports its changes, and errors, until it is cancelled."""
FOLLOWING: Final = "following what is moved"


def leave_out_old(phase: str, collection: Mapping[str, int]) -> None:
    """As one of `gc.callbacks`: leave what has survived a full collection out of later ones, so that thousands of links
    that begin one after another are gone through once instead of again and again."""
    if phase == "stop" and collection["generation"] == 2:
        gc.freeze()


async def collect_old(sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Go through everything an hour after the start, and in each hour in which there is a quarter more than before.

    The second collection is of nothing: Python makes the next one only once a quarter as much is new as the last one
    was of.
    """
    before = 0
    while True:
        await sleep(ALL_EVERY)
        if gc.get_freeze_count() > before * GROWN:
            gc.unfreeze()
            gc.collect()
            gc.collect()
            before = gc.get_freeze_count()


def run_agent(path: Path, *, log_format: str | None, log_level: str | None, waits_at: str | None) -> None:
    """`waits_at`: where to answer probes while the configuration isn't valid, rather than to end."""
    address = None if waits_at is None else _address(waits_at)
    load = partial(load_configuration, str(path), environment=os.environ)
    uvloop.run(_run(str(path), load, log_format=log_format, log_level=log_level, waits_at=address))


def run_loaded(
    source: str, load: Callable[[], Configuration], follow: Follow, *, log_format: str | None, log_level: str | None
) -> None:
    """An agent whose configuration is made, of the file `source` and of what is followed."""
    uvloop.run(_run(source, load, log_format=log_format, log_level=log_level, follow=follow))


async def _run(
    source: str,
    load: Callable[[], Configuration],
    *,
    log_format: str | None,
    log_level: str | None,
    waits_at: HttpSettings | None = None,
    follow: Follow | None = None,
) -> None:
    deadline = StopDeadline(lambda: log.error("not stopped in time: the process ends anyway", seconds=STOPPED_WITHIN))
    stop = _stop_signal(deadline)
    raise_descriptor_limit()
    gc.freeze()  # the modules, which are never let go; a full collection keeps the loop, the longer the more there is
    gc.set_threshold(*COLLECT_AFTER)
    gc.callbacks.append(leave_out_old)
    board = _board()
    asyncio.get_running_loop().set_exception_handler(board.errors.of_loop)
    waiting = None
    if waits_at is not None:
        configure_logging(_log_settings(LogSettings(), log_format, log_level), sys.stdout)
        waiting = ConfigurationWait(source, load, waits_at, _board())
    supervisor = await _valid_supervisor(lambda: Supervisor(load, board), waiting, stop)
    if supervisor is None:
        log.info("stopped")
        deadline.settled()
        return
    settings = supervisor.configuration.settings.agent
    configure_logging(_log_settings(settings.log, log_format, log_level), sys.stdout)
    board.owner, board.group = settings.name or board.owner, settings.group or ""
    board.public_url = settings.http.public_url
    server = HttpServer(
        settings.http,
        board,
        supervisor,
        token=lambda: supervisor.configuration.settings.agent.http.token,
        peers=lambda: supervisor.configuration.settings.agent.peers,
    )
    await server.start()
    exporter = None if settings.status_export is None else Exporter(settings.status_export, board)
    if exporter is not None:
        await exporter.start()
    watcher = Watcher(
        supervisor.reload,
        on_error=supervisor.report,
        files=lambda: supervisor.configuration.files,
        events=lambda: supervisor.listener.events(DEFINITION_EVENTS),
    )
    supervisor.has_unread = lambda link: watcher.has_unread(link.vhost, link.name)
    log.info("started", configuration=source, http=server.address)
    watcher.handle_hangup()
    tasks = GuardedTasks(board.errors)
    tasks.keep(WATCHING, watcher.run)
    if follow is not None:
        tasks.keep(FOLLOWING, partial(follow, partial(watcher.notify, ReloadCause.HANGUP), supervisor.report))
    tasks.keep(LOGGING_CAUSES, CauseLog(board).run)
    tasks.keep(COLLECTING, collect_old)
    tasks.keep(
        EXPIRIES,
        lambda: watch_expiries(
            lambda: supervisor.configuration.settings.downstream, supervisor.shown_certificates, board
        ),
    )
    tasks.keep(STANDBY_TASK, lambda: _keep_in_step(supervisor, board))
    await stop.wait()
    log.info("stopping")
    await tasks.end(END_PATIENCE)  # whatever becomes of them, what is in flight is settled
    await supervisor.stop()
    if exporter is not None:
        await exporter.stop()
    await server.stop()
    log.info("stopped")
    deadline.settled()


async def _keep_in_step(supervisor: Supervisor, board: Board) -> None:
    """Imports what that needs only once a configuration asks for it."""
    while True:
        if supervisor.configuration.settings.standby is not None:
            from agent.migration.standby import keep_in_step

            await keep_in_step(lambda: supervisor.configuration, board)
        await asyncio.sleep(LOOK_FOR_STANDBY)


def _board() -> Board:
    return Board(time.time, owner=socket.gethostname(), version=VERSION)


def _log_settings(configured: LogSettings, log_format: str | None, log_level: str | None) -> LogSettings:
    return LogSettings(LogFormat(log_format or configured.format), LogLevel(log_level or configured.level))


def _address(text: str) -> HttpSettings:
    listen = listen_of(OPTION, text)
    return HttpSettings(listen.host, listen.port)


async def _valid_supervisor(
    make: Callable[[], Supervisor], waiting: ConfigurationWait | None, stop: asyncio.Event
) -> Supervisor | None:
    """Made of the first valid configuration; None where the agent has to stop before there is one."""
    while True:
        try:
            return make()
        except ConfigurationError as error:
            if waiting is None:
                raise
            await waiting.until_valid(error, stop)
        if stop.is_set():
            return None


def _stop_signal(deadline: StopDeadline) -> asyncio.Event:
    """Handles signals from now on: one that arrives during the start counts too."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin() -> None:
        stop.set()
        deadline.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin)
    return stop
