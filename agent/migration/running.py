"""A migration file as the configuration of an ordinary agent, which moves messages from one cluster to the other.

Both are read again and again, so that queues that `copy` makes later move, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from agent.core.migration.links import QueueMoves, consumer_tag, definitions_of, group_of, moves_of
from agent.core.migration.objects import ClusterObjects, ObjectKey
from agent.core.migration.selection import choose
from agent.core.settings import AgentSettings, DownstreamSettings, Settings, SourceSettings
from agent.core.text import counted, listed
from agent.definitions.sources.load import Configuration
from agent.definitions.sources.migration import Migration, load_migration
from agent.errors import BrokerError, ConfigurationError, PermanentError, Place, Problem
from agent.management.client import ManagementClient
from agent.migration.reading import open_clusters, read_cluster
from agent.tasks import gather_both

BETWEEN: Final = 30.0
_MOST_NAMED: Final = 5
ClusterReadings: TypeAlias = tuple[ClusterObjects, ClusterObjects]
"""Of the file's source and its target."""


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """A cluster, with its key in the file."""

    key: str
    settings: DownstreamSettings = field(repr=False)
    objects: ClusterObjects


@dataclass(frozen=True, slots=True)
class MigrationMove:
    """The move that a file asks for, one way or the other."""

    migration: Migration
    origin: MoveEnd
    destination: MoveEnd
    queues: QueueMoves

    def __str__(self) -> str:
        hows = list(self.queues.queues.values())
        what = [f"{counted(hows.count(how), 'queue')} by {how}" for how in sorted(set(hows))]
        ends = f"from cluster {self.origin.objects.cluster!r} to cluster {self.destination.objects.cluster!r}"
        return f"moves {' and '.join(what) or 'no queue'} {ends}"


async def read_both(migration: Migration) -> ClusterReadings:
    """Raises BrokerError."""
    async with open_clusters(migration.source, migration.target) as both:
        source, target = await gather_both(
            read_cluster(both.source, migration.vhosts, is_source=True),
            read_cluster(both.target, migration.vhosts, is_source=False),
        )
        return source, target


def move_of(migration: Migration, read: ClusterReadings, *, back: bool) -> MigrationMove:
    """Raises ConfigurationError for what can't be chosen so."""
    source, target = MoveEnd("source", migration.source, read[0]), MoveEnd("target", migration.target, read[1])
    queues = moves_of(choose(read[0], migration.vhosts), *read, back=back)
    return MigrationMove(migration, *((target, source) if back else (source, target)), queues)


async def refuse_what_cant_begin(move: MigrationMove) -> None:
    """Raises BrokerError, with what to do: before anything moves, and never later."""
    origin, destination = move.origin, move.destination
    if origin.objects.cluster == destination.objects.cluster:
        raise PermanentError(
            f"source and target are both named {origin.objects.cluster!r}: if they are two clusters, give one another "
            "name (rabbitmqctl set_cluster_name); within one, nothing has to move"
        )
    if move.queues.missing:
        advice = "run 'federation-agent migrate copy' first, or leave them out of the file"
        raise PermanentError(f"{destination.key}: {_missing_text(move.queues.missing)}: {advice}")
    management, setting = destination.settings.management, f"{destination.key}.management"
    async with ManagementClient(management, where=destination.key, setting=setting) as client:
        await _refuse_hidden_consumers(client, destination)
        tag = consumer_tag(origin.objects.cluster)
        for vhost in sorted({key.vhost for key in move.queues.queues}):
            for consumer in await client.consumers(vhost):
                if consumer["consumer_tag"].startswith(tag):
                    raise PermanentError(
                        f"{destination.key}: an agent moves queue {consumer['queue'].get('name')!r} in vhost {vhost!r} "
                        f"back to {origin.key}, so messages would go round: stop the other 'migrate run' or 'rollback' "
                        "first (brokers show its consumers for some seconds after that)"
                    )


async def _refuse_hidden_consumers(client: ManagementClient, end: MoveEnd) -> None:
    """Users without a tag see their own consumers only."""
    user = await client.whoami()
    if not user.sees_others and {uri.login[0] for uri in end.settings.uris} != {user.name}:
        raise PermanentError(
            f"{end.key}: user {user.name!r} of {end.key}.management doesn't see consumers of other users, and so no "
            f"agent that moves messages the other way: give it the tag monitoring, or let {end.key}.uri have that user"
        )


def _missing_text(missing: Sequence[ObjectKey]) -> str:
    verb = "is" if len(missing) == 1 else "are"
    return f"{counted(len(missing), 'queue')} {verb} missing ({listed([str(key) for key in missing], _MOST_NAMED)})"


@dataclass(slots=True)
class MovingConfiguration:
    """The agent's configuration, which follows from the file as it is now and the last readings of both clusters."""

    path: str
    environment: Mapping[str, str] = field(repr=False)
    read: ClusterReadings = field(repr=False)
    back: bool = False
    agent: AgentSettings = field(default_factory=AgentSettings)

    def load(self) -> Configuration:
        """Raises ConfigurationError."""
        migration = load_migration(self.path, environment=self.environment)
        move, place = move_of(migration, self.read, back=self.back), Place(self.path)
        advice = "they move once 'federation-agent migrate copy' has made them"
        missing = [Problem(place, f"{_missing_text(move.queues.missing)} at the {move.destination.key}; {advice}")]
        cluster = move.destination.objects.cluster
        return Configuration(
            self.path,
            Settings(
                move.destination.settings,
                replace(self.agent, group=group_of(move.origin.objects.cluster, migration.vhosts)),
                SourceSettings(management=False),
            ),
            definitions_of(move.queues, move.origin.settings.uris, cluster, place),
            warnings=(*migration.warnings, *(missing if move.queues.missing else ())),
            files=migration.files,
        )

    async def follow(
        self,
        changed: Callable[[], None],
        report: Callable[[Exception], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Until it is cancelled. An error is reported once, and all goes on as it was."""
        said = ""
        while True:
            await sleep(BETWEEN)
            try:
                found = await read_both(load_migration(self.path, environment=self.environment))
            except (BrokerError, ConfigurationError) as error:
                if str(error) != said:
                    report(error)
                said = str(error)
                continue
            source, target = map(_remembering, self.read, found)
            said, is_new = "", (source, target) != self.read
            self.read = source, target
            if is_new:
                changed()


def _remembering(before: ClusterObjects, now: ClusterObjects) -> ClusterObjects:
    """The objects of now; those shown without properties, as while a node is down, are as they were before."""
    known = {key: before.objects[key] for key in now.unread if key in before.objects}
    unread = {key: reason for key, reason in now.unread.items() if key not in known}
    return replace(now, objects={**now.objects, **known}, unread=unread) if known else now
