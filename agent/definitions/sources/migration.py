"""A migration file → its two clusters and what it selects, or all its problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from agent.core.migration.selection import VhostSelection
from agent.definitions.document import yaml
from agent.definitions.document.findings import DocumentFindings, Path, Spot, file_error, in_order, raise_errors
from agent.definitions.document.interpolate import Interpolator
from agent.definitions.models.migration import MigrationEnd, MigrationModel
from agent.definitions.models.validation import check
from agent.errors import ConfigurationError, Place, Problem
from agent.read_file import read_file


@dataclass(frozen=True, slots=True)
class Migration:
    """The contents of a migration file."""

    source: MigrationEnd
    target: MigrationEnd
    vhosts: Mapping[str, VhostSelection] = field(repr=False)
    warnings: tuple[Problem, ...] = ()


def load_migration(path: str, *, environment: Mapping[str, str]) -> Migration:
    """Raises ConfigurationError with all problems."""
    tree = yaml.compose_file(path, is_followed=False)
    problems = list(tree.problems)

    def place(at: Path, key: bool) -> Place:
        return Place(path, *tree.position(at, key=key))

    def refuse(at: Path, message: str) -> None:
        spot.error(message, *at)

    interpolator = Interpolator(
        environment, str(FilePath(path).parent), refuse, refuse, partial(read_file, is_followed=False)
    )
    spot = Spot(DocumentFindings(place, interpolator.raw, interpolator.unresolved, problems))
    if tree.root is None or not isinstance(tree.root.content, dict):
        raise ConfigurationError([*problems, *file_error(path, "expected 'source', 'target' and 'vhosts'").problems])
    raw: dict[str, Any] = tree.plain(interpolator.resolve)
    model = check(MigrationModel, raw, spot)
    raise_errors(problems)
    if model is None:
        raise ConfigurationError(in_order(problems))
    vhosts = {name: each.to_core(spot.at("vhosts", name)) for name, each in model.vhosts.items()}
    return Migration(model.source.to_core(), model.target.to_core(), vhosts, tuple(in_order(problems)))
