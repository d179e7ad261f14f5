"""The exports that a configuration names, read and merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.core.model import Binding, Definitions, VhostState
from agent.definitions.document.findings import Spot
from agent.definitions.sources import exports
from agent.definitions.sources.exports import Export
from agent.errors import ConfigurationError
from agent.read_file import UnreadableError, read_file

Bindings = Mapping[str, Mapping[str, tuple[Binding, ...]]]


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """The merged contents of the files; `complete` is whether all could be read."""

    definitions: tuple[tuple[str, Definitions], ...] = ()
    states: Mapping[str, VhostState] = field(default_factory=dict)
    bindings: Bindings = field(default_factory=dict)
    complete: bool = True


def read_exports(paths: Iterable[str], spot: Spot, *, strict: bool) -> ExportFiles:
    """Reports unreadable files at `spot`, the list of files, and other errors in their own file."""
    found: list[tuple[str, Export]] = []
    complete = True
    for number, path in enumerate(paths):
        export = _read(path, spot.at(number), strict=strict)
        if export is None:
            complete = False
        else:
            found.append((path, export))
            spot.findings.problems.extend(export.warnings)
    return ExportFiles(
        definitions=tuple((path, export.definitions) for path, export in found),
        states=_states([export for _, export in found]),
        bindings=_bindings([export for _, export in found]),
        complete=complete,
    )


def _read(path: str, spot: Spot, *, strict: bool) -> Export | None:
    written = spot.findings.raw.get(spot.path, path)  # locations never show the value of a ${…}
    try:
        return exports.read_export(read_file(path, exports.MAX_BYTES, is_followed=strict), written)
    except UnreadableError as error:
        report = spot.error if strict else spot.warn
        report(f"definitions.files: {error}")
    except ConfigurationError as error:
        spot.findings.problems.extend(error.problems)
    return None


def _states(found: list[Export]) -> dict[str, VhostState]:
    joined: dict[str, VhostState] = {}
    for export in found:
        for vhost, state in export.states.items():
            before = joined.get(vhost, VhostState())
            joined[vhost] = VhostState({**before.exchanges, **state.exchanges}, {**before.queues, **state.queues})
    return joined


def _bindings(found: list[Export]) -> dict[str, dict[str, tuple[Binding, ...]]]:
    joined: dict[str, dict[str, tuple[Binding, ...]]] = {}
    for export in found:
        for vhost, by_source in export.bindings.items():
            into = joined.setdefault(vhost, {})
            for source, bindings in by_source.items():
                into[source] = (*into.get(source, ()), *bindings)
    return joined
