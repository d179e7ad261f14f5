"""The configuration of a move as a file, for an agent that is started with it, or that runs already.

Addresses are written with their `${env:…}` and `${file:…}`, never with what these stand for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agent.core.addresses.url_text import encode
from agent.core.migration.links import UPSTREAM
from agent.core.model import Definitions, VhostDefinitions
from agent.core.text import printable
from agent.definitions.sources.load import Configuration, load_configuration
from agent.errors import ConfigurationError, Place, UsageError
from agent.migration.running import MigrationMove

MARK: Final = "# federation-agent: the configuration of a move, by"
"""The beginning of each such file; another one isn't written over."""
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?:file:(?P<path>[^{}]*)|[^{}]*)\}")
_HOW_TO: Final = """\
# Start an agent with it:       federation-agent run -c {out}
# Or give it to an agent that runs beside that cluster already: copy x-ends and vhosts into its configuration; the
# policies of it that federate the same queues have to have a priority below 1000. Write it again for new queues.
"""


def write(
    out: Path, move: MigrationMove, configuration: Configuration, *, step: str, environment: Mapping[str, str]
) -> None:
    """At once or not at all, with the access that the migration file has. Raises UsageError where it can't be, or
    wouldn't be read again as what is meant."""
    if not _is_ours(out):
        raise UsageError(f"--write {out}: it exists, and wasn't written by 'migrate': name another file, or remove it")
    source = Path(configuration.source)
    text = document(move, configuration, step=f"'migrate {step} {source.name}'", out=out)
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
            return file.read(len(MARK)) == MARK
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


def document(move: MigrationMove, configuration: Configuration, *, step: str, out: Path) -> str:
    directory = Path(configuration.source).absolute().parent
    written = _with_absolute_files(move.migration.written, directory)
    return "".join(f"{line}\n" for line in _lines(move, configuration, written, step=step, out=out))


def _lines(
    move: MigrationMove, configuration: Configuration, written: Mapping[str, Any], *, step: str, out: Path
) -> Iterator[str]:
    uris = written[move.origin.key]["uri"]
    uris = uris if isinstance(uris, list) else [uris]
    vhosts = configuration.definitions.vhosts
    yield f"{MARK} {printable(step)}"
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
