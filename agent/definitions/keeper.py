"""The definitions in force: the last good ones of every source, whatever came after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.core.model import Definitions
from agent.errors import ConfigurationError, Problem


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why a source's latest reading isn't in force; the reading where it only conflicts with other sources."""

    problems: tuple[Problem, ...]
    reading: Definitions | None = None


class Keeper:
    """Takes readings of sources, in any order; one that is bad, or conflicts, changes nothing.

    A reading that conflicted is tried again when another source changes: moving a name from one source
    to another works in whichever order the two are read.
    """

    def __init__(self, merge: Callable[[Sequence[tuple[str, Definitions]]], Definitions]) -> None:
        self._merge = merge
        self._good: dict[str, Definitions] = {}
        self._refused: dict[str, _Refused] = {}
        self.current = Definitions()
        self.reloaded_at: float | None = None

    @property
    def reload_success(self) -> bool:
        """Whether what is in force is what all sources say now."""
        return not self._refused

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What keeps the latest readings out of force."""
        return tuple(dict.fromkeys(problem for refused in self._refused.values() for problem in refused.problems))

    @property
    def error(self) -> ConfigurationError | None:
        return ConfigurationError(self.problems) if self._refused else None

    def offer(self, source: str, reading: Definitions, *, now: float) -> Definitions:
        """A source was read; what is in force afterwards."""
        self._refused[source] = _Refused((), reading)
        return self._settle(now)

    def reject(self, source: str, problems: Iterable[Problem]) -> Definitions:
        """A source couldn't be read, or its document is bad; what stays in force."""
        self._refused[source] = _Refused(tuple(problems))
        return self.current

    def forget(self, source: str, *, now: float) -> Definitions:
        """A source is configured no more; what is in force without it."""
        self._refused.pop(source, None)
        if self._good.pop(source, None) is not None:
            self.current = self._merge(tuple(self._good.items()))
        return self._settle(now)

    def _settle(self, now: float) -> Definitions:
        """Puts in force what fits: all together, as where two sources swap names, or else one by one."""
        waiting = {source: each.reading for source, each in self._refused.items() if each.reading is not None}
        if waiting and not self._try(waiting):
            while any(
                self._try({source: reading}) for source, reading in tuple(waiting.items()) if source in self._refused
            ):
                pass
        if self.reload_success:
            self.reloaded_at = now
        return self.current

    def _try(self, readings: Mapping[str, Definitions]) -> bool:
        candidate = {**self._good, **readings}
        try:
            merged = self._merge(tuple(candidate.items()))
        except ConfigurationError as error:
            self._refused.update({source: _Refused(error.problems, reading) for source, reading in readings.items()})
            return False
        self._good, self.current = candidate, merged
        for source in readings:
            self._refused.pop(source)
        return True
