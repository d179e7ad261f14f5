"""The definitions in force: the last valid reading of every source, merged; one name from two sources is an error.

Why: docs/decisions/0024-sources-one-by-one.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

from agent.core.model import Definitions, Policy, VhostDefinitions, VhostState
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
_Sections: TypeAlias = dict[str, dict[str, Any]]


def merge(sources: Iterable[tuple[str, Definitions]]) -> Definitions:
    """Raises ConfigurationError with every name that two sources define."""
    merged, conflicts = _merged_sections(sources)
    if conflicts:
        raise ConfigurationError(problem for of_vhost in conflicts.values() for problem in of_vhost)
    return Definitions({vhost: VhostDefinitions(**sections) for vhost, sections in merged.items()})


def _merged_sections(
    sources: Iterable[tuple[str, Definitions]],
) -> tuple[dict[str, _Sections], dict[str, list[Problem]]]:
    """The sections of all sources, and the names that two of them define; by vhost."""
    merged: dict[str, _Sections] = {}
    places: dict[tuple[str, str, str], Place] = {}
    conflicts: dict[str, list[Problem]] = {}
    for source, definitions in sources:
        for vhost, found in definitions.vhosts.items():
            into = merged.setdefault(vhost, {field.name: {} for field in fields(VhostDefinitions)})
            for section, entries in into.items():
                for name, thing in getattr(found, section).items():
                    place = getattr(thing, "place", Place(source))
                    if name in entries:
                        there = places[vhost, section, name]
                        conflicts.setdefault(vhost, []).append(_conflict(section, name, vhost, here=place, there=there))
                    entries[name] = thing
                    places[vhost, section, name] = place
    return merged, conflicts


def _conflict(section: str, name: str, vhost: str, *, here: Place, there: Place) -> Problem:
    what = f"{_NOUNS[section]} {quoted(name)} in vhost {quoted(vhost)}"
    return problem_at(here, f"{what} is also defined at {there}; rename or remove one of them")


@dataclass(frozen=True, slots=True)
class SourceReading:
    """The definitions of a source. A broker's federating policies are separate, by vhost: the broker itself decides
    where each applies."""

    definitions: Definitions = field(default_factory=Definitions)
    verdicts: Mapping[str, Mapping[str, Policy]] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    refused: tuple[Problem, ...] = ()  # problems that keep single vhosts unchanged, while the others are followed
    is_by_vhost: bool = False  # whether each vhost's part is its tenant's own, and can be refused separately


@dataclass(frozen=True, slots=True)
class _Refused:
    """The problems that keep a source's latest reading from taking effect; with the reading if it only conflicts with
    other sources."""

    problems: tuple[Problem, ...]
    reading: SourceReading | None = None


class Keeper:
    """Accepts readings of sources, in any order; an invalid or conflicting one changes nothing. A conflicting reading
    is tried again when another source changes: moving a name from one source to another works in any order of reading.
    """

    def __init__(self) -> None:
        self._good: dict[str, SourceReading] = {}
        self._refused: dict[str, _Refused] = {}
        self.current = SourceReading()
        self.states: Mapping[str, VhostState] = {}
        """The definitions of each vhost when it was last read successfully."""
        self.once_defining: frozenset[tuple[str, str]] = frozenset()
        """Sources and vhosts of the broker's definitions that may be invisible if nothing is read for them."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that keep the latest readings from taking effect; empty if all are in force."""
        return tuple(dict.fromkeys((*self.refusals, *self.current.refused)))

    @property
    def refusals(self) -> tuple[Problem, ...]:
        """The problems that keep whole readings from taking effect."""
        return tuple(dict.fromkeys(problem for refused in self._refused.values() for problem in refused.problems))

    def in_force(self, source: str) -> SourceReading:
        """The definitions of a source that are in force."""
        return self._good.get(source, SourceReading())

    def refuses(self, source: str) -> bool:
        """True if the source's latest reading isn't in force."""
        return source in self._refused

    def take(self, source: str, read: Callable[[], SourceReading]) -> None:
        """Reads a source; if `read` raises ConfigurationError, its previous definitions stay in force."""
        try:
            reading = read()
        except ConfigurationError as error:
            self.refuse(source, error)
        else:
            self._refused[source] = _Refused((), reading)
            self._settle()

    def refuse(self, source: str, error: ConfigurationError) -> None:
        """The source can't be read; its previous definitions stay in force."""
        self._refused[source] = _Refused(error.problems)

    def forget(self, source: str) -> None:
        """A source is no longer configured."""
        self._refused.pop(source, None)
        if self._good.pop(source, None) is not None:
            self.current = _merged(self._good)
        self._settle()

    def _settle(self) -> None:
        """Puts readings in force: all together, for example if two sources swap names, or else one by one."""
        waiting = {source: each.reading for source, each in self._refused.items() if each.reading is not None}
        if waiting and not self._try(waiting):
            while any(
                self._try({source: reading}) for source, reading in tuple(waiting.items()) if source in self._refused
            ):
                pass
        for source, reading in waiting.items():
            if source in self._refused and reading.is_by_vhost:
                self._take_without_conflicts(source, reading)

    def _take_without_conflicts(self, source: str, reading: SourceReading) -> None:
        """Vhosts with a conflicting name stay unchanged; all are tried again when a source changes."""
        others = [(name, each.definitions) for name, each in self._good.items() if name != source]
        _, conflicts = _merged_sections([*others, (source, reading.definitions)])
        self._good[source] = _as_before(reading, self.in_force(source), conflicts)
        self.current = _merged(self._good)
        self._refused[source] = _Refused((), reading)

    def _try(self, readings: Mapping[str, SourceReading]) -> bool:
        candidate = {**self._good, **readings}
        try:
            merged = _merged(candidate)
        except ConfigurationError as error:
            self._refused.update({source: _Refused(error.problems, reading) for source, reading in readings.items()})
            return False
        self._good, self.current = candidate, merged
        for source in readings:
            self._refused.pop(source)
        return True


def _as_before(
    reading: SourceReading, before: SourceReading, conflicts: Mapping[str, Sequence[Problem]]
) -> SourceReading:
    """The reading, with the source's `before` definitions of the vhosts with conflicts."""
    definitions = {vhost: found for vhost, found in reading.definitions.vhosts.items() if vhost not in conflicts}
    verdicts = {vhost: found for vhost, found in reading.verdicts.items() if vhost not in conflicts}
    definitions |= {vhost: found for vhost, found in before.definitions.vhosts.items() if vhost in conflicts}
    verdicts |= {vhost: found for vhost, found in before.verdicts.items() if vhost in conflicts}
    problems = (problem for of_vhost in conflicts.values() for problem in of_vhost)
    return replace(
        reading, definitions=Definitions(definitions), verdicts=verdicts, refused=(*reading.refused, *problems)
    )


def _merged(readings: Mapping[str, SourceReading]) -> SourceReading:
    """Raises ConfigurationError if one name comes from two sources; only one source has policies in force."""
    return SourceReading(
        definitions=merge((source, of_source.definitions) for source, of_source in readings.items()),
        verdicts={vhost: of_vhost for of_source in readings.values() for vhost, of_vhost in of_source.verdicts.items()},
        warnings=tuple(warning for of_source in readings.values() for warning in of_source.warnings),
        refused=tuple(problem for of_source in readings.values() for problem in of_source.refused),
    )
