"""What is in force: the last good reading of every source, whatever came after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.core.model import Definitions, Policy, VhostState
from agent.definitions.sources.merge import conflicts_of, merge
from agent.errors import ConfigurationError, Problem


@dataclass(frozen=True, slots=True)
class SourceReading:
    """What a source says. A broker's federating policies stand apart, by vhost: it says itself where each holds."""

    definitions: Definitions = field(default_factory=Definitions)
    verdicts: Mapping[str, Mapping[str, Policy]] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    refused: tuple[Problem, ...] = ()  # what keeps single vhosts as they were, while the others are followed
    is_by_vhost: bool = False  # whether each vhost's part is its tenant's own, and can be refused by itself


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why a source's latest reading isn't in force; the reading where it only conflicts with other sources."""

    problems: tuple[Problem, ...]
    reading: SourceReading | None = None


class Keeper:
    """Takes readings of sources, in any order; one that is bad, or conflicts, changes nothing.

    A reading that conflicted is tried again when another source changes: moving a name from one source
    to another works in whichever order the two are read.
    """

    def __init__(self) -> None:
        self._good: dict[str, SourceReading] = {}
        self._refused: dict[str, _Refused] = {}
        self.current = SourceReading()
        self.states: Mapping[str, VhostState] = {}
        """What stood in each vhost when it was last read well."""
        self.once_defining: frozenset[tuple[str, str]] = frozenset()
        """Sources and vhosts of the broker's definitions that may be out of sight where nothing is read of them."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What keeps the latest readings out of force; nothing where what is in force is what all sources say now."""
        return tuple(dict.fromkeys((*self.refusals, *self.current.refused)))

    @property
    def refusals(self) -> tuple[Problem, ...]:
        """What keeps whole readings out of force."""
        return tuple(dict.fromkeys(problem for refused in self._refused.values() for problem in refused.problems))

    def standing(self, source: str) -> SourceReading:
        """What is in force of a source."""
        return self._good.get(source, SourceReading())

    def refuses(self, source: str) -> bool:
        """Whether what the source said last isn't in force."""
        return source in self._refused

    def take(self, source: str, read: Callable[[], SourceReading]) -> None:
        """Reads a source; where `read` raises ConfigurationError, what it said before stays in force."""
        try:
            reading = read()
        except ConfigurationError as error:
            self.refuse(source, error)
        else:
            self._refused[source] = _Refused((), reading)
            self._settle()

    def refuse(self, source: str, error: ConfigurationError) -> None:
        """The source can't be read; what it said before stays in force."""
        self._refused[source] = _Refused(error.problems)

    def forget(self, source: str) -> None:
        """A source is configured no more."""
        self._refused.pop(source, None)
        if self._good.pop(source, None) is not None:
            self.current = _merged(self._good)
        self._settle()

    def _settle(self) -> None:
        """Puts in force what fits: all together, as where two sources swap names, or else one by one."""
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
        """Vhosts in which a name conflicts stay as they were; all is tried again when a source changes."""
        others = [(name, each.definitions) for name, each in self._good.items() if name != source]
        conflicts = conflicts_of([*others, (source, reading.definitions)])
        self._good[source] = _as_before(reading, self.standing(source), conflicts)
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
    """The reading, with what the source said `before` of the vhosts with conflicts."""
    definitions = {vhost: found for vhost, found in reading.definitions.vhosts.items() if vhost not in conflicts}
    verdicts = {vhost: found for vhost, found in reading.verdicts.items() if vhost not in conflicts}
    definitions |= {vhost: found for vhost, found in before.definitions.vhosts.items() if vhost in conflicts}
    verdicts |= {vhost: found for vhost, found in before.verdicts.items() if vhost in conflicts}
    problems = (problem for of_vhost in conflicts.values() for problem in of_vhost)
    return replace(
        reading, definitions=Definitions(definitions), verdicts=verdicts, refused=(*reading.refused, *problems)
    )


def _merged(readings: Mapping[str, SourceReading]) -> SourceReading:
    """Raises ConfigurationError where one name comes from two sources; one source alone has verdicts."""
    return SourceReading(
        definitions=merge((source, told.definitions) for source, told in readings.items()),
        verdicts={vhost: of_vhost for told in readings.values() for vhost, of_vhost in told.verdicts.items()},
        warnings=tuple(warning for told in readings.values() for warning in told.warnings),
        refused=tuple(problem for told in readings.values() for problem in told.refused),
    )
