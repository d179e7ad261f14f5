"""The commands `migrate …`: queues and exchanges of one cluster moved to another."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from agent.cli import output
from agent.cli.options import INTERRUPTED, OK, FormatOption, examples
from agent.errors import AgentError, UsageError

if TYPE_CHECKING:
    from agent.core.migration.difference import MigrationPlan
    from agent.core.migration.objects import ClusterObjects
    from agent.definitions.sources.migration import Migration
    from agent.migration.following import CopyRound

NOT_SAFE: Final = 4

T = TypeVar("T")

app = typer.Typer(help="Definitions of one cluster brought to another, with a look before.", no_args_is_help=True)
FileOption = Annotated[
    Path, typer.Argument(metavar="FILE", help="The migration file: source, target, and what moves of which vhosts.")
]


@app.command(
    epilog=examples(
        "migrate plan migration.yaml",
        "migrate plan migration.yaml --rehearse --format json",
        "migrate plan --source-definitions definitions.json --target-release 4.3",
    )
)
def plan(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The migration file; not needed with --source-definitions."),
    ] = None,
    *,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Try it in a scratch vhost of the target, which is removed again."),
    ] = False,
    source_definitions: Annotated[
        Path | None,
        typer.Option("--source-definitions", metavar="EXPORT", help="Judge a definitions export, without any broker."),
    ] = None,
    target_release: Annotated[
        str | None, typer.Option("--target-release", metavar="RELEASE", help="For this release, as 4.3 or 4.3.6.")
    ] = None,
    format_: FormatOption = "text",
) -> int:
    """Show what the target lacks, what it would refuse or ignore, and what else to know before; change nothing.

    Exit status: 0, or 4 if the target would refuse something as it is at the source, or has it differently.
    """
    from agent.cli.migration_text import plan_as_json, plan_lines

    if (source_definitions is None) is not (target_release is None):
        raise UsageError("--source-definitions and --target-release need each other")
    if source_definitions is not None:
        if rehearse:
            raise UsageError("--rehearse needs a target, and with --source-definitions there is none")
        found, sides = _offline(file, source_definitions, target_release or "")
    elif file is None:
        raise UsageError("give the migration file, or --source-definitions and --target-release")
    else:
        found, sides = _until_signal(_plan(_load(file), is_rehearsed=rehearse))
    if format_ == "json":
        output.say_json(plan_as_json(found, sides))
    else:
        for name, side in sides.items():
            if isinstance(side, dict):
                output.say(f"{name}: cluster {side['cluster']!r}, RabbitMQ {side['version']}")
        for line in plan_lines(found, with_actions=source_definitions is None):
            output.say(line)
    return OK if found.is_safe else NOT_SAFE


@app.command(epilog=examples("migrate copy migration.yaml", "migrate copy migration.yaml --follow"))
def copy(
    file: FileOption,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until a signal: what changes at the source is copied within 30 s.")
    ] = False,
    format_: FormatOption = "text",
) -> int:
    """Make vhosts, policies, exchanges, queues and bindings at the target that it lacks. Deletes nothing, and copies no
    users or permissions.

    It can be repeated at any time. Exit status: 0, or 4 if the target refused something or has it differently.
    """
    from agent.cli.migration_text import account_as_json, account_lines, is_complete, warnings_text

    migration = _load(file)
    if follow:
        return _until_signal(_follow(migration, as_json=format_ == "json"), stopped=OK)
    done = _until_signal(_copy(migration))
    if format_ == "json":
        output.say_json(account_as_json(done.plan, done.account))
    else:
        for line in account_lines(done.plan, done.account):
            output.say(line)
    warnings = warnings_text(done.plan)
    output.complain(*([warnings] if warnings else []))
    return OK if is_complete(done.plan, done.account) else NOT_SAFE


def _load(file: Path) -> Migration:
    from agent.definitions.sources.migration import load_migration

    migration = load_migration(str(file), environment=os.environ)
    output.complain(*(str(problem) for problem in migration.warnings))
    return migration


def _offline(file: Path | None, export: Path, target: str) -> tuple[MigrationPlan, dict[str, Any]]:
    from agent.core.migration.difference import plan_migration
    from agent.core.migration.objects import ClusterObjects, release_of
    from agent.core.migration.selection import choose, everything
    from agent.definitions.sources.cluster_objects import read_cluster_export
    from agent.errors import Place

    release = release_of(target)
    if release is None:
        raise UsageError(f"--target-release {target!r} is no release: write 4.3 or 4.3.6")
    source = read_cluster_export(str(export))
    if file is None:
        selection = {key.vhost: everything(Place(str(export))) for key in source.objects}
    else:
        selection = dict(_load(file).vhosts)
    there = ClusterObjects("", release)
    found = plan_migration(source, there, choose(source, selection))
    return found, {"source": _side(source), "target": {"cluster": None, "version": target}}


async def _plan(migration: Migration, *, is_rehearsed: bool) -> tuple[MigrationPlan, dict[str, Any]]:
    from agent.migration.following import look
    from agent.migration.reading import open_clusters
    from agent.migration.rehearsing import rehearse

    async with open_clusters(migration.source, migration.target) as clusters:
        plan, sides = await look(clusters, migration.vhosts)
        if is_rehearsed:
            more = await rehearse(clusters.target, plan.wanted, datetime.now(UTC))
            plan = replace(plan, objections=(*plan.objections, *more))
    return plan, {"source": _side(sides[0]), "target": _side(sides[1]), "rehearsed": is_rehearsed}


async def _copy(migration: Migration) -> CopyRound:
    from agent.migration.following import copy_once
    from agent.migration.reading import open_clusters

    async with open_clusters(migration.source, migration.target) as clusters:
        return await copy_once(clusters, migration.vhosts)


async def _follow(migration: Migration, *, as_json: bool) -> int:
    from agent.migration.following import Follower
    from agent.migration.reading import open_clusters

    async with open_clusters(migration.source, migration.target) as clusters:
        await Follower(clusters, migration.vhosts, _Reporter(as_json=as_json), chance=random.random).run()
    return OK


class _Reporter:
    """Prints a round in which something happened, and an error once."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._last = ""

    def __call__(self, found: CopyRound | AgentError) -> None:
        from agent.cli.migration_text import account_as_json, account_lines, warnings_text

        if isinstance(found, AgentError):
            if str(found) != self._last:
                output.complain(str(found))
            self._last = str(found)
            return
        if self._as_json:
            content: list[str] = [output.as_json(account_as_json(found.plan, found.account), None)]
        else:
            content = list(account_lines(found.plan, found.account))
        shown = "in step"
        if found.account.done or found.account.left or self._last != shown:
            for line in content:
                output.say(line if not self._as_json else output.Ready(line))
            warnings = warnings_text(found.plan)
            output.complain(*([warnings] if warnings and not self._last else []))
        self._last = shown


def _side(side: ClusterObjects) -> dict[str, Any]:
    from agent.core.migration.objects import release_text

    return {"cluster": side.cluster, "version": release_text(side.release)}


def _until_signal(work: Coroutine[Any, Any, T], *, stopped: int = INTERRUPTED) -> T:
    """The first signal cancels it, and waits until it has tidied up; the second one ends the process."""

    async def run() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(each)
            if task is not None:
                task.cancel()

        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise typer.Exit(stopped) from None
