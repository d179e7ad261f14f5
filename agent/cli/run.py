"""`run`: the agent itself, until it gets a signal to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog
import uvloop

from agent.amqp.broker_events import DEFINITION_EVENTS
from agent.cli.deadline import SECONDS, StopDeadline
from agent.cli.logs import configure_logging
from agent.core.settings import LogFormat, LogLevel, LogSettings
from agent.definitions.sources.load import load_configuration
from agent.downstream.watch import Watcher
from agent.runtime.expiry import TASK as EXPIRIES
from agent.runtime.expiry import watch_expiries
from agent.runtime.problems import WATCHING
from agent.runtime.supervisor import Supervisor
from agent.status.board import Board
from agent.status.export.exporter import Exporter
from agent.status.http.limits import raise_descriptor_limit
from agent.status.http.server import HttpServer
from agent.tasks import GuardedTasks

END_PATIENCE: Final = 2.0

log = structlog.get_logger()


def run_agent(path: Path, *, log_format: str | None, log_level: str | None) -> None:
    uvloop.run(_run(path, log_format=log_format, log_level=log_level))


async def _run(path: Path, *, log_format: str | None, log_level: str | None) -> None:
    deadline = StopDeadline(lambda: log.error("not stopped in time: the process ends anyway", seconds=SECONDS))
    told = _told_to_stop(deadline)
    raise_descriptor_limit()
    board = Board(time.time, owner=socket.gethostname(), version=version("federation-agent"))
    asyncio.get_running_loop().set_exception_handler(board.errors.of_loop)
    supervisor = Supervisor(lambda: load_configuration(str(path), environment=os.environ), board)
    settings = supervisor.configuration.settings.agent
    chosen = LogSettings(LogFormat(log_format or settings.log.format), LogLevel(log_level or settings.log.level))
    configure_logging(chosen, sys.stdout)
    board.owner, board.group = settings.name or board.owner, settings.group or ""
    server = HttpServer(
        settings.http,
        board,
        supervisor.act,
        delete_shovel=supervisor.delete_shovel,
        pause=supervisor.pause,
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
    log.info("started", configuration=str(path), http=server.address)
    watcher.hear_hangup()
    tasks = GuardedTasks(board.errors)
    tasks.keep(WATCHING, watcher.run)
    tasks.keep(
        EXPIRIES,
        lambda: watch_expiries(
            lambda: supervisor.configuration.settings.downstream, supervisor.shown_certificates, board
        ),
    )
    await told.wait()
    log.info("stopping")
    await tasks.end(END_PATIENCE)  # whatever becomes of them, what is in flight is settled
    await supervisor.stop()
    if exporter is not None:
        await exporter.stop()
    await server.stop()
    log.info("stopped")
    deadline.settled()


def _told_to_stop(deadline: StopDeadline) -> asyncio.Event:
    """Handles signals from now on: one that arrives during the start counts too."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        told.set()
        deadline.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return told
