"""A migration file → its two clusters and what it selects, or all its problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core.migration.selection import VhostSelection
from agent.core.settings import DownstreamSettings
from agent.definitions.models.migration import MigrationModel
from agent.definitions.sources.load import OpenDocument
from agent.errors import Problem


@dataclass(frozen=True, slots=True)
class Migration:
    """The contents of a migration file; its representation shows no address."""

    source: DownstreamSettings = field(repr=False)
    target: DownstreamSettings = field(repr=False)
    vhosts: Mapping[str, VhostSelection] = field(repr=False)
    warnings: tuple[Problem, ...] = ()
    files: frozenset[str] = field(default=frozenset(), repr=False)
    written: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The file with its references, rather than what they stand for."""


def load_migration(path: str, *, environment: Mapping[str, str]) -> Migration:
    """Raises ConfigurationError with all problems."""
    document = OpenDocument(path, environment, needs="the keys 'source', 'target' and 'vhosts'")
    model, spot, warnings = document.checked(MigrationModel)
    vhosts = {name: each.to_core(spot.at("vhosts", name)) for name, each in model.vhosts.items()}
    ends = model.source.to_core(), model.target.to_core()
    return Migration(*ends, vhosts, warnings, document.files, document.as_written())
