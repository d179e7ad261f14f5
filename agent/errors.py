"""The tree of the agent's errors. A message says what, where, why and what to do, and never holds a secret.

AgentError
├── UsageError              a command line can't be understood
├── ConfigurationError      a document is wrong; holds every problem found, with its place
├── UriError                an AMQP URI or HTTP URL can't be understood
├── BrokerError             a broker said no, or said nothing
│   ├── TransientError      the same again may work: retry
│   └── PermanentError      the same again won't work: something has to be changed first
└── CannotStartError        a port is taken, a directory can't be written
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class AgentError(Exception):
    """Any error that the agent raises on purpose."""


class UsageError(AgentError):
    """A command line can't be understood."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOT_RUN = "not run"
    """Something is defined, and the agent does nothing with it; all else is in force."""


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a value: a file's line and column, or an object of a broker's HTTP API."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix; the message is one line and contains no secret."""

    place: Place
    message: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        kind = "" if self.severity is Severity.ERROR else f"{self.severity}: "
        return f"{self.place}: {kind}{self.message}"


class ConfigurationError(AgentError):
    """A document is invalid; holds every problem found in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UriError(AgentError):
    """An AMQP URI or HTTP URL is invalid; the message never quotes it."""


class Side(StrEnum):
    """Which of the two brokers that a link connects."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


class BrokerError(AgentError):
    """A broker said no, or said nothing. `side` is set where it is known which of a link's brokers it was."""

    side: Side | None = None


@contextmanager
def happening_on(side: Side) -> Iterator[None]:
    """Marks the errors of brokers that are raised inside."""
    try:
        yield
    except BrokerError as error:
        error.side = error.side or side
        raise


class TransientError(BrokerError):
    """Trying again may work."""


class PermanentError(BrokerError):
    """Trying again won't work before the configuration or a permission is changed."""


class CannotStartError(AgentError):
    """The process can't start: a port is taken, a directory can't be written."""
