"""The commands `migrate run` and `migrate rollback`: looks at both clusters, then an ordinary agent, or its file."""

from __future__ import annotations

import os
import signal
import sys
from itertools import groupby
from pathlib import Path

from agent.cli import output
from agent.cli.migration_text import load
from agent.cli.options import OK
from agent.cli.signals import until_signal
from agent.core.migration.links import QueueMoves
from agent.core.settings import AgentSettings, HttpSettings, StatusExportSettings
from agent.core.text import counted, listed
from agent.definitions.models.settings import listen_of
from agent.errors import UsageError
from agent.migration.running import MovingConfiguration, move_of, read_both, refuse_what_cant_begin
from agent.migration.writing import write

_MOST_NAMED = 5


def move(
    file: Path,
    *,
    back: bool,
    out: Path | None,
    listen: str | None,
    export: Path | None,
    log_format: str | None,
    log_level: str | None,
) -> int:
    agent = AgentSettings(
        http=HttpSettings() if listen is None else _http(listen),
        status_export=None if export is None else StatusExportSettings(str(export)),
    )
    migration = load(file)
    read = until_signal(read_both(migration), OK)
    moved = move_of(migration, read, back=back)
    until_signal(refuse_what_cant_begin(moved), OK)
    output.complain(*_left(moved.queues))
    moving = MovingConfiguration(str(file), os.environ, read, back, agent)
    step = "rollback" if back else "run"
    if out is not None:
        write(out, moved, moving.load(), step=step, environment=os.environ)
        output.say(f"{out}: written; with it, an agent {moved}")
        return OK
    output.complain(f"{moved}; stop with Ctrl-C or SIGTERM")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))  # until the agent handles it
    from agent.cli.run import run_loaded

    run_loaded(str(file), moving.load, moving.follow, log_format=log_format, log_level=log_level)
    return OK


def _http(listen: str) -> HttpSettings:
    found = listen_of("--listen", listen)
    if not found.is_loopback:
        raise UsageError(
            "--listen: others can reach this address: write the configuration (--write), with a token in it"
        )
    return HttpSettings(found.host, found.port)


def _left(queues: QueueMoves) -> list[str]:
    """A line for each reason."""
    by_reason = sorted(queues.left.items(), key=lambda each: (each[1], str(each[0])))
    return [
        f"not moved: {counted(len(names), 'queue')}: {listed(names, _MOST_NAMED)}: {reason}"
        for reason, found in groupby(by_reason, key=lambda each: each[1])
        for names in [[f"{key.name!r} in vhost {key.vhost!r}" for key, _ in found]]
    ]
