"""The commands `migrate plan` and `migrate copy`: definitions of one cluster planned for another, and copied; and
`migrate run` and `migrate rollback`: looks at both clusters, then an ordinary agent, or its file.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.cli import output
from agent.cli.migration_text import (
    account_as_json,
    account_lines,
    is_complete,
    load,
    masked,
    plan_as_json,
    plan_lines,
    warnings_text,
)
from agent.cli.options import INTERRUPTED, OK
from agent.cli.signals import until_signal
from agent.core.migration.difference import MigrationPlan, plan_migration, rehearsed
from agent.core.migration.links import QueueMoves
from agent.core.migration.objects import ClusterObjects, release_of, release_text
from agent.core.migration.releases import KNOWN
from agent.core.migration.selection import choose, everything
from agent.core.settings import AgentSettings, HttpSettings, StatusExportSettings
from agent.core.text import counted, listed
from agent.definitions.models.settings import listen_of
from agent.errors import AgentError, BrokerError, Place, UsageError
from agent.migration.running import MovingConfiguration, move_of, read_both, refuse_what_cant_begin, write_move

if TYPE_CHECKING:
    from agent.definitions.sources.load import Migration
    from agent.migration.copying import CopyRound
    from agent.migration.reading import ClusterPair


NOT_SAFE: Final = 5
T = TypeVar("T")


def plan(file: Path, *, is_rehearsed: bool, form: str) -> int:
    """Shows it also if it can't be rehearsed, and raises the error then."""
    from agent.migration.copying import look, rehearse

    migration = load(file)

    async def work(clusters: ClusterPair) -> tuple[MigrationPlan, dict[str, Any], BrokerError | None]:
        found, source, target = await look(clusters, migration.vhosts)
        sides = {"source": _side(source), "target": _side(target)}
        try:
            refused = await rehearse(clusters.target, found.wanted) if is_rehearsed else None
        except BrokerError as error:
            return found, {**sides, "rehearsed": False}, error
        found = found if refused is None else rehearsed(found, source.objects, refused)
        return found, {**sides, "rehearsed": is_rehearsed}, None

    found, sides, error = _with_both(migration, work)
    status = _show(found, sides, form)
    if error is not None:
        raise error
    return status


def plan_export(file: Path | None, export: Path, target_release: str, *, form: str) -> int:
    from agent.definitions.sources.cluster_objects import read_cluster_export

    release, known = release_of(target_release), " to ".join(map(release_text, KNOWN))
    if release is None or not KNOWN[0] <= release <= KNOWN[1]:
        raise UsageError(f"--target-release {target_release!r} isn't known: write 4.3 or 4.3.6; known are {known}")
    source = read_cluster_export(str(export))
    vhosts = {key.vhost: everything(Place(str(export))) for key in source.objects} if file is None else {}
    selection = vhosts if file is None else load(file).vhosts
    found = plan_migration(source, ClusterObjects("", release), choose(source, selection))
    target = {"cluster": None, "version": release_text(release)}
    return _show(found, {"source": _side(source), "target": target, "rehearsed": False}, form)


def _show(found: MigrationPlan, sides: dict[str, Any], form: str) -> int:
    is_offline = sides["target"]["cluster"] is None
    if form == "json":
        output.say_json(plan_as_json(found, sides))
    else:
        for name in ("source", "target"):
            if sides[name]["cluster"] is not None:
                output.say(f"{name}: cluster {sides[name]['cluster']!r}, RabbitMQ {sides[name]['version']}")
        _say(plan_lines(found, with_actions=not is_offline))
    return OK if found.is_safe else NOT_SAFE


def copy(file: Path, *, follow: bool, form: str) -> int:
    from agent.migration.copying import Follower, copy_once

    migration, reporter = load(file), _Reporter(as_json=form == "json", indent=None if follow else 2)

    async def follow_on(clusters: ClusterPair) -> None:
        await Follower(clusters, migration.vhosts, reporter, chance=random.random).run()

    if follow:
        _with_both(migration, follow_on, stopped=OK)
        return OK
    done = _with_both(migration, lambda clusters: copy_once(clusters, migration.vhosts))
    reporter(done)
    return OK if is_complete(done.plan, done.account) else NOT_SAFE


def _with_both(migration: Migration, work: Callable[[ClusterPair], Awaitable[T]], *, stopped: int = INTERRUPTED) -> T:
    from agent.migration.reading import open_clusters

    async def run() -> T:
        async with open_clusters(migration.source, migration.target) as clusters:
            return await work(clusters)

    return until_signal(run(), stopped)


class _Reporter:
    """Prints a round in which something happened, and an error once."""

    def __init__(self, *, as_json: bool, indent: int | None) -> None:
        self._as_json = as_json
        self._indent = indent
        self._last: object = None

    def __call__(self, found: CopyRound | AgentError) -> None:
        if isinstance(found, AgentError):
            if self._last != str(found):
                output.complain(str(found))
            self._last = str(found)
            return
        if found.account.done or self._last != found.account.left:
            if self._as_json:
                output.say(output.as_json(account_as_json(found.plan, found.account), self._indent))
            else:
                _say(account_lines(found.plan, found.account))
            warnings = warnings_text(found.plan)
            output.complain(*([warnings] if warnings and self._last is None else []))
        self._last = found.account.left


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        output.say(output.Ready(masked(output.line(line))))


def _side(side: ClusterObjects) -> dict[str, Any]:
    return {"cluster": side.cluster, "version": release_text(side.release)}


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
        write_move(out, moved, moving.load(), step=step, environment=os.environ)
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
        f"not moved: {counted(len(names), 'queue')}: {listed(names)}: {reason}"
        for reason, found in groupby(by_reason, key=lambda each: each[1])
        for names in [[f"{key.name!r} in vhost {key.vhost!r}" for key, _ in found]]
    ]
