"""The data that was read from the downstream cluster at one time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from agent.core.model import Binding, Definitions, Link, NativeLink, ShovelLink, VhostState
from agent.errors import Place, Problem

WHERE = "downstream"
CONNECTION_NAME = "federation-agent: reading exchanges"
AT_ONCE = 4  # requests whose responses may have up to 64 MiB each
MOST_SILENT = 3  # vhosts; with more, the broker itself doesn't answer

Bindings = Mapping[tuple[str, str], tuple[Binding, ...]]
Parameters = Sequence[Mapping[str, Any]]


class DefinitionSource(StrEnum):
    """The sources of definitions. Exports belong to the configuration, which names them and refers to their
    definitions."""

    CONFIGURATION = "configuration"
    PARAMETERS = "parameters"
    POLICIES = "policies"
    GLOBAL = "global parameter"
    STANDBY = "standby"
    """The definitions that follow from the section of that name, until a promotion."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading the downstream and every source of definitions once."""

    broker: str
    cluster: str
    version: str
    definitions: Definitions
    states: Mapping[str, VhostState]
    native_links: frozenset[NativeLink] = frozenset()
    bindings: Bindings = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    visible: frozenset[str] | None = None  # None if vhosts can't be listed
    unseen: frozenset[str] = frozenset()
    followed: frozenset[str] = frozenset()  # vhosts of a standby that isn't promoted
    has_failed_over: bool = False
    problems: tuple[Problem, ...] = ()  # of single vhosts: what can't be read there stays unchanged
    identity: str | None = None  # independent of the cluster's name; None if unknown

    def sees(self, vhost: str) -> bool:
        """True if objects missing from the vhost are known to be deleted, and not only invisible."""
        return vhost not in self.unseen and (self.visible is None or vhost in self.visible)

    def judged(self, link: Link, *, has_known_bindings: bool) -> Link:
        """The link with its problem, if it has one: a link of a vhost that can't be seen, whose bindings are not known,
        can't run before it is seen."""
        if isinstance(link, ShovelLink):  # its URIs are all that it needs
            return link
        is_hidden = self.visible is not None and link.vhost not in self.visible
        if not is_hidden or has_known_bindings or link.name in self.definitions.of(link.vhost).bindings:
            return link
        problem = f"vhost {link.vhost!r} does not exist on the downstream, or the agent's user may not see it"
        return replace(link, problem=link.problem or problem)


def left_as_it_was(broker: str, vhost: str, error: Exception) -> Problem:
    return Problem(Place(f"{broker} vhost {vhost!r}"), f"can't be read, so it stays as it was: {error}")
