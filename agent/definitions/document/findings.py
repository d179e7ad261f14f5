"""Collects the problems of a document with their locations; values are never quoted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agent.errors import ConfigurationError, Place, Problem, Severity

Path: TypeAlias = tuple[str | int, ...]
Locate: TypeAlias = Callable[[Path, bool], Place]
"""Returns the location of a path's value, or of its key; of the longest part that exists."""

MOST_PROBLEMS = 100
_PLAIN_NAME = re.compile(r"[\w.#*/ +-]{1,64}")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\u2027\u2030-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")


def one_line(text: str) -> str:
    return _UNPRINTABLE.sub(" ", text)


def quoted(name: str) -> str:
    """A name for messages; text that doesn't look like a name may be a misplaced URI or password and is not shown."""
    return f"'{name}'" if _PLAIN_NAME.fullmatch(name) else "(not shown: it doesn't look like a name)"


@dataclass(slots=True)
class DocumentFindings:
    """The problems of a document found so far. `raw` holds interpolated texts as written; `unresolved` are those
    without a value on this machine."""

    locate: Locate
    raw: Mapping[Path, str] = field(default_factory=dict)
    unresolved: Set[Path] = frozenset()
    problems: list[Problem] = field(default_factory=list)
    regex_bytes: int = 0
    _counted: int = 0
    _errors: int = 0

    def add(
        self,
        message: str,
        path: Path,
        *,
        key: bool = False,
        severity: Severity = Severity.ERROR,
        may_be_elsewhere: bool = False,
    ) -> None:
        """Raises ConfigurationError if there are too many to continue; further warnings are dropped."""
        if not key and self.is_unresolved(path):
            return  # it was checked with a placeholder, and a warning already says so; a key has no placeholder
        if severity is not Severity.ERROR and self.full:
            return
        place = self.locate(path, key)
        self.problems.append(replace(problem_at(place, message, severity), may_be_elsewhere=may_be_elsewhere))
        if self.errors >= MOST_PROBLEMS:
            more = problem_at(place, f"{MOST_PROBLEMS} problems so far; fix these and check again")
            raise ConfigurationError([*in_order(self.problems), more])

    def is_unresolved(self, path: Path) -> bool:
        """True if the value there, or one that contains it, is unknown on this machine."""
        return any(path[:length] in self.unresolved for length in range(len(path) + 1))

    @property
    def full(self) -> bool:
        return len(self.problems) >= 2 * MOST_PROBLEMS

    @property
    def errors(self) -> int:
        """Counts incrementally, since every entry asks and problems are only added."""
        self._errors += sum(problem.severity is Severity.ERROR for problem in self.problems[self._counted :])
        self._counted = len(self.problems)
        return self._errors


@dataclass(frozen=True, slots=True)
class Spot:
    """A path in a document, and where its problems are reported. `native` marks definitions that RabbitMQ has accepted
    by its own, less strict rules."""

    findings: DocumentFindings
    path: Path = ()
    native: bool = False

    def at(self, *parts: str | int) -> Spot:
        return replace(self, path=self.path + parts)

    @property
    def place(self) -> Place:
        return self.findings.locate(self.path, True)

    def error(self, message: str, *parts: str | int, key: bool = False) -> None:
        self.findings.add(message, self.path + parts, key=key)

    def warn(self, message: str, *parts: str | int, key: bool = False) -> None:
        self.findings.add(message, self.path + parts, key=key, severity=Severity.WARNING)

    def warn_undefined(self, message: str) -> None:
        """Warns of a name that isn't defined here and that another source may define."""
        self.findings.add(message, self.path, severity=Severity.WARNING, may_be_elsewhere=True)

    def not_run(self, message: str, *parts: str | int, key: bool = False) -> None:
        """Reports a definition that is valid, and that the agent does nothing with."""
        self.findings.add(message, self.path + parts, key=key, severity=Severity.NOT_RUN)

    def is_unresolved(self, *parts: str | int) -> bool:
        return self.findings.is_unresolved(self.path + parts)

    def name(self, value: str, *parts: str | int) -> str:
        """A value that is a name, for messages: as written, not as resolved."""
        raw = self.findings.raw.get(self.path + parts)
        return quoted(value) if raw is None or len(raw) > 100 else f"'{one_line(raw)}'"


def problem_at(place: Place, message: str, severity: Severity = Severity.ERROR) -> Problem:
    return Problem(replace(place, source=one_line(place.source)), one_line(message), severity)


def file_problem(source: str, message: str, line: int = 1, column: int = 1) -> Problem:
    return problem_at(Place(source, line, column), message)


def file_error(source: str, message: str, line: int = 1, column: int = 1) -> ConfigurationError:
    return ConfigurationError([file_problem(source, message, line, column)])


def in_order(problems: list[Problem]) -> list[Problem]:
    """Sorted by position; files keep the order in which they were read."""
    sources = {source: number for number, source in enumerate(dict.fromkeys(p.place.source for p in problems))}
    return sorted(problems, key=lambda p: (sources[p.place.source], p.place.line or 0, p.place.column or 0))


def raise_errors(problems: list[Problem]) -> None:
    """A document with errors is refused as a whole; its warnings are reported too."""
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise ConfigurationError(in_order(problems))
