"""A migration file as the configuration of an ordinary agent, which moves messages from one cluster to the other: in
this process, or as a file for an agent that is started with it, or that runs already.

The clusters are read again and again, so that queues that `copy` makes later move, too. In a file addresses are written
with their `${env:…}` and `${file:…}`, never with what these stand for.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from agent.core.addresses.url_text import encode
from agent.core.migration.links import UPSTREAM, QueueMoves, consumer_tag, definitions_of, group_of, moves_of
from agent.core.migration.objects import ClusterObjects, ObjectKey
from agent.core.migration.selection import choose
from agent.core.model import Definitions, VhostDefinitions
from agent.core.settings import AgentSettings, DownstreamSettings, Settings, SourceSettings
from agent.core.text import counted, listed, printable
from agent.definitions.sources.load import Configuration, Migration, load_configuration, load_migration
from agent.errors import BrokerError, ConfigurationError, PermanentError, Place, Problem, UsageError
from agent.management.client import ManagementClient
from agent.migration.reading import open_clusters, read_cluster
from agent.tasks import gather_both

BETWEEN: Final = 30.0
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
    return f"{counted(len(missing), 'queue')} {verb} missing ({listed([str(key) for key in missing])})"


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


WRITTEN_MARK: Final = "# federation-agent: the configuration of a move, by"
"""The beginning of each such file; another one isn't written over."""
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?:file:(?P<path>[^{}]*)|[^{}]*)\}")
_HOW_TO: Final = """\
# Start an agent with it:       federation-agent run -c {out}
# Or give it to an agent that runs beside that cluster already: copy x-ends and vhosts into its configuration; the
# policies of it that federate the same queues have to have a priority below 1000. Write it again for new queues.
"""


def write_move(
    out: Path, move: MigrationMove, configuration: Configuration, *, step: str, environment: Mapping[str, str]
) -> None:
    """At once or not at all, with the access that the migration file has. Raises UsageError where it can't be, or
    wouldn't be read again as what is meant."""
    if not _is_ours(out):
        raise UsageError(f"--write {out}: it exists, and wasn't written by 'migrate': name another file, or remove it")
    source = Path(configuration.source)
    text = move_document(move, configuration, step=f"'migrate {step} {source.name}'", out=out)
    directory = out.resolve().parent
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=f".{out.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        shutil.copymode(source, temporary)
        _refuse_other_meaning(temporary, configuration, out, environment)
        Path(temporary).replace(out)
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()


def _is_ours(out: Path) -> bool:
    try:
        with out.open(encoding="utf-8", errors="replace") as file:
            return file.read(len(WRITTEN_MARK)) == WRITTEN_MARK
    except FileNotFoundError:
        return True


def _refuse_other_meaning(path: str, meant: Configuration, out: Path, environment: Mapping[str, str]) -> None:
    reason, cause = "another address would be read", None
    try:
        found = load_configuration(path, environment=environment)
    except ConfigurationError as error:
        reason, cause = str(error.problems[0]).replace(path, str(out)), error
    else:
        settings = found.settings.downstream, meant.settings.downstream
        if settings[0] == settings[1] and _placeless(found.definitions) == _placeless(meant.definitions):
            return
    raise UsageError(
        f"--write: it wouldn't be read again as what is meant ({reason}). Write scheme, host and TLS settings "
        "('?cacertfile=…') in the URI itself, not in ${…} or ssl-options; a file has also room for some thousand "
        "queues only: choose fewer, or use 'migrate run' without --write, which has no such limit"
    ) from cause


def _placeless(definitions: Definitions) -> Definitions:
    nowhere = Place("")

    def without(section: Mapping[str, Any]) -> dict[str, Any]:
        return {name: replace(each, place=nowhere) for name, each in section.items()}

    return Definitions(
        {
            vhost: VhostDefinitions(
                upstreams=without(each.upstreams), policies=without(each.policies), shovels=without(each.shovels)
            )
            for vhost, each in definitions.vhosts.items()
        }
    )


def move_document(move: MigrationMove, configuration: Configuration, *, step: str, out: Path) -> str:
    directory = Path(configuration.source).absolute().parent
    written = _with_absolute_files(move.migration.written, directory)
    return "".join(f"{line}\n" for line in _lines(move, configuration, written, step=step, out=out))


def _lines(
    move: MigrationMove, configuration: Configuration, written: Mapping[str, Any], *, step: str, out: Path
) -> Iterator[str]:
    uris = written[move.origin.key]["uri"]
    uris = uris if isinstance(uris, list) else [uris]
    vhosts = configuration.definitions.vhosts
    yield f"{WRITTEN_MARK} {printable(step)}"
    yield f"# It {printable(str(move))}."
    yield from _HOW_TO.format(out=printable(str(out))).splitlines()
    yield f"agent: {{group: {_text(configuration.settings.agent.group)}}}"
    yield f"downstream: {_json(written[move.destination.key])}"
    yield "definitions: {management: false}"
    yield "x-ends:"
    for number, (vhost, defined) in enumerate(vhosts.items()):
        for shovel in list(defined.shovels.values())[:1]:
            ends = {"src-uri": [in_vhost(uri, vhost) for uri in uris], "dest-uri": f"amqp:///{encode(vhost)}"}
            yield f"- &v{number}"
            yield from (f"  {key}: {_json(value)}" for key, value in ends.items())
            yield f"  src-consumer-name: {_text(shovel.settings.consumer_tag)}"
            yield from ("  src-predeclared: true", "  dest-predeclared: true")
    yield "vhosts:"
    for number, (vhost, defined) in enumerate(vhosts.items()):
        yield f"  {_json(vhost)}:"
        yield "    upstreams:"
        for name, upstream in defined.upstreams.items():
            addresses = _json([in_vhost(uri, vhost) for uri in uris])
            yield f"      {name}: {{uri: {addresses}, consumer-tag: {_text(upstream.settings.consumer_tag)}}}"
        yield "    policies:"
        for policy in defined.policies.values():
            yield f"      {policy.name}:"
            yield f"        pattern: {_text(policy.pattern)}"
            yield f"        apply-to: {policy.apply_to}"
            yield f"        priority: {policy.priority:g}"
            yield f"        definition: {{federation-upstream: {UPSTREAM}}}"
        yield "    shovels:"
        for name, shovel in defined.shovels.items():
            (queue,) = shovel.source.keys.values()
            yield f"      {_json(name)}: {{<<: *v{number}, src-queue: {_text(queue)}, dest-queue: {_text(queue)}}}"


def in_vhost(written: str, vhost: str) -> str:
    """An AMQP URI as it is written, for this vhost: whatever references it has, they stay."""
    hidden = _REFERENCE.sub(lambda found: "_" * len(found[0]), written)
    query = hidden.find("?") if "?" in hidden else len(hidden)
    path = hidden.find("/", hidden.find("://") + 3, query)
    return f"{written[: query if path < 0 else path]}/{encode(vhost)}{written[query:]}"


def _with_absolute_files(value: Any, directory: Path) -> Any:
    """The file may be written to another directory, from which `${file:…}` would be another file."""
    match value:
        case str():
            return _REFERENCE.sub(
                lambda found: found[0] if found["path"] is None else f"${{file:{Path(directory, found['path'])}}}",
                value,
            )
        case list():
            return [_with_absolute_files(each, directory) for each in value]
        case dict():
            return {key: _with_absolute_files(each, directory) for key, each in value.items()}
    return value


def _text(value: str | None) -> str:
    """A text as a value that reads as itself, also where it looks like a reference."""
    return _json((value or "").replace("${", "$${"))


def _json(value: Any) -> str:
    """JSON is YAML, but for letters that YAML has no place for."""
    return printable(json.dumps(value, ensure_ascii=False))
