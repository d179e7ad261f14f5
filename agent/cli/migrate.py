"""How `migrate …` goes: definitions of one cluster planned for another, and copied."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.cli import output
from agent.cli.migration_text import (
    account_as_json,
    account_lines,
    is_complete,
    masked,
    plan_as_json,
    plan_lines,
    warnings_text,
)
from agent.cli.options import INTERRUPTED, OK
from agent.cli.signals import until_signal
from agent.core.migration.difference import MigrationPlan, plan_migration, rehearsed
from agent.core.migration.objects import ClusterObjects, release_of, release_text
from agent.core.migration.releases import KNOWN
from agent.core.migration.selection import choose, everything
from agent.errors import AgentError, BrokerError, Place, UsageError

if TYPE_CHECKING:
    from agent.definitions.sources.migration import Migration
    from agent.migration.copying import CopyRound

NOT_SAFE: Final = 5


def plan(file: Path, *, is_rehearsed: bool, form: str) -> int:
    found, sides, error = until_signal(_plan(_load(file), is_rehearsed=is_rehearsed), INTERRUPTED)
    status = _show(found, {**sides, "rehearsed": is_rehearsed and error is None}, form)
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
    selection = vhosts if file is None else _load(file).vhosts
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
    migration, as_json = _load(file), form == "json"
    if follow:
        return until_signal(_follow(migration, as_json=as_json), OK)
    done = until_signal(_copy(migration), INTERRUPTED)
    _Reporter(as_json=as_json, indent=2)(done)
    return OK if is_complete(done.plan, done.account) else NOT_SAFE


def _load(file: Path) -> Migration:
    from agent.definitions.sources.migration import load_migration

    migration = load_migration(str(file), environment=os.environ)
    output.complain(*(str(problem) for problem in migration.warnings))
    return migration


async def _plan(
    migration: Migration, *, is_rehearsed: bool
) -> tuple[MigrationPlan, dict[str, Any], BrokerError | None]:
    """With the error of a rehearsal, as the plan is of use without."""
    from agent.migration.copying import look
    from agent.migration.reading import open_clusters
    from agent.migration.rehearsing import rehearse

    async with open_clusters(migration.source, migration.target) as clusters:
        found, source, target = await look(clusters, migration.vhosts)
        sides = {"source": _side(source), "target": _side(target)}
        if is_rehearsed:
            try:
                found = rehearsed(found, source.objects, await rehearse(clusters.target, found.wanted))
            except BrokerError as error:
                return found, sides, error
    return found, sides, None


async def _copy(migration: Migration) -> CopyRound:
    from agent.migration.copying import copy_once
    from agent.migration.reading import open_clusters

    async with open_clusters(migration.source, migration.target) as clusters:
        return await copy_once(clusters, migration.vhosts)


async def _follow(migration: Migration, *, as_json: bool) -> int:
    from agent.migration.copying import Follower
    from agent.migration.reading import open_clusters

    async with open_clusters(migration.source, migration.target) as clusters:
        await Follower(clusters, migration.vhosts, _Reporter(as_json=as_json), chance=random.random).run()
    return OK


class _Reporter:
    """Prints a round in which something happened, and an error once."""

    def __init__(self, *, as_json: bool, indent: int | None = None) -> None:
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
