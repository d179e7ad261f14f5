"""Several sources → one; the same name from two of them is an error that names both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from agent.core.model import Definitions, VhostDefinitions
from agent.definitions.document.findings import problem_at, quoted
from agent.errors import ConfigurationError, Place, Problem

_NOUNS = {
    "upstreams": "upstream",
    "upstream_sets": "upstream set",
    "policies": "policy",
    "exchanges": "exchange",
    "bindings": "list of bindings of exchange",
    "shovels": "shovel",
}


def merge(sources: Iterable[tuple[str, Definitions]]) -> Definitions:
    """Raises ConfigurationError with every name that two sources define."""
    merged, conflicts = _merged(sources)
    if conflicts:
        raise ConfigurationError(problem for of_vhost in conflicts.values() for problem in of_vhost)
    return Definitions({vhost: VhostDefinitions(**sections) for vhost, sections in merged.items()})


def conflicts_of(sources: Iterable[tuple[str, Definitions]]) -> Mapping[str, Sequence[Problem]]:
    """The names that two sources define, by vhost."""
    return _merged(sources)[1]


_Sections: TypeAlias = dict[str, dict[str, Any]]


def _merged(sources: Iterable[tuple[str, Definitions]]) -> tuple[dict[str, _Sections], dict[str, list[Problem]]]:
    merged: dict[str, _Sections] = {}
    places: dict[tuple[str, str, str], Place] = {}
    conflicts: dict[str, list[Problem]] = {}
    for source, definitions in sources:
        for vhost, found in definitions.vhosts.items():
            into = merged.setdefault(vhost, {field.name: {} for field in fields(VhostDefinitions)})
            for section, entries in into.items():
                for name, thing in _section(found, section).items():
                    place = getattr(thing, "place", Place(source))
                    if name in entries:
                        there = places[vhost, section, name]
                        conflicts.setdefault(vhost, []).append(_conflict(section, name, vhost, here=place, there=there))
                    entries[name] = thing
                    places[vhost, section, name] = place
    return merged, conflicts


def _section(definitions: VhostDefinitions, section: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(definitions, section)
    return found


def _conflict(section: str, name: str, vhost: str, *, here: Place, there: Place) -> Problem:
    what = f"{_NOUNS[section]} {quoted(name)} in vhost {quoted(vhost)}"
    return problem_at(here, f"{what} is also defined at {there}; rename or remove one of them")
