"""The tree of the agent's errors. A message says what is wrong, where, why and what to do, and never holds a secret.

AgentError
├── UsageError              a command line can't be understood
├── UnknownLinkError        no link has the name that somebody gave, or several have
├── ConfigurationError      a document is wrong; holds every problem found, with its place
├── UriError                an AMQP URI or HTTP URL can't be understood
├── BrokerError             a broker refused a request, or did not respond
│   ├── TransientError      the same again may work: retry
│   └── PermanentError      the same again won't work: something has to be changed first
└── CannotStartError        a port is taken, a directory can't be written

Why: docs/decisions/0040-failures-are-values.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class AgentError(Exception):
    """Any error that the agent raises on purpose."""


class UsageError(AgentError):
    """A command line can't be understood."""


class UnknownLinkError(AgentError):
    """No link has the name, or several have."""


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
    may_be_elsewhere: bool = False  # it is about a name that another source, which isn't read here, may define

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
    """One of the two brokers that a link connects."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


class FailureKind(StrEnum):
    """The kinds of failure that keep messages from moving. Status, causes, advice, metrics and export use this one
    list; a value is the text for operators. Of several alarms the first counts."""

    MEMORY_ALARM = "memory alarm"
    DISK_ALARM = "disk alarm"
    BLOCKED = "publishers blocked"
    NO_CONFIRMS = "nothing confirmed"
    PAUSED = "paused for long"
    EXCHANGE_DELETED = "exchange deleted"
    QUEUE_DELETED = "queue deleted"
    BEHIND = "further behind than lag-critical"
    UNREACHABLE = "unreachable"
    UNRESOLVED = "host not resolved"
    NOT_ANSWERING = "not answering"
    NOT_READING = "not reading"
    HEARTBEATS_MISSED = "heartbeats missed"
    LOST = "connection lost"
    CLOSED = "closed by the broker"
    STOOD_STILL = "agent stood still"
    LOGIN = "login refused"
    PERMISSION = "permission missing"
    NO_VHOST = "vhost missing"
    NOT_FOUND = "object missing"
    TLS = "TLS failed"
    INVALID = "configuration has to change"
    OTHER = "failing"


@dataclass(frozen=True, slots=True)
class Failure:
    """The facts of a failure. Names of objects are chosen by tenants and texts by peers: they are shown, and decide
    nothing. Where the broker doesn't say a fact, it is empty."""

    kind: FailureKind = FailureKind.OTHER
    side: Side | None = None
    is_permanent: bool = False  # the same again won't work before something is changed
    user: str = ""
    vhost: str = ""
    object: str = ""
    object_type: str = ""  # exchange | queue | topic | vhost; the object of a topic is the exchange
    permission: str = ""  # configure | write | read


UNKNOWN: Final = Failure()


class BrokerError(AgentError):
    """A broker refused a request, or didn't respond. `where` is its address and `doing` the request, where these are
    known, and `what` is the rest of the message: of a refusal the broker's own text. `side` is set where it is known
    which of a link's brokers it was. A `cause` is the same as to raise from it."""

    facts: Failure | None = None
    """The facts of the error itself; without them, those of its cause count."""

    def __init__(
        self,
        what: str = "",
        *,
        where: str = "",
        doing: str = "",
        side: Side | None = None,
        facts: Failure | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(": ".join(filter(None, (where, doing, what))))
        self.where, self.what = where, what
        self.side: Side | None = side or getattr(cause, "side", None)
        if facts is not None:
            self.facts = facts
        if cause is not None:
            self.__cause__ = cause

    @property
    def failure(self) -> Failure:
        is_permanent, facts = isinstance(self, PermanentError), _facts(self)
        if is_permanent and facts.kind not in _TO_BE_FIXED:
            facts = Failure(FailureKind.INVALID)
        return replace(facts, side=self.side or facts.side, is_permanent=is_permanent)


_REFUSED: Final = {FailureKind.LOGIN, FailureKind.PERMISSION, FailureKind.NO_VHOST, FailureKind.NOT_FOUND}
_TO_BE_FIXED: Final = frozenset({*_REFUSED, FailureKind.TLS, FailureKind.INVALID})
"""Other kinds pass by themselves. A permanent error that was raised from one of them counts as `INVALID`."""


def _facts(error: BaseException | None) -> Failure:
    while error is not None:
        if isinstance(error, BrokerError) and error.facts is not None:
            return error.facts
        if isinstance(error, OSError):
            return Failure(FailureKind.UNREACHABLE)
        error = error.__cause__
    return UNKNOWN


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


def joined(failures: Sequence[BrokerError], *kinds: type[BrokerError]) -> BrokerError:
    """One error for all addresses of a broker: of the first of `kinds` that any of them is. Its cause is the
    first that somebody has to fix there, otherwise the first that shows that the broker is away."""
    if len(failures) == 1:
        return failures[0]
    kind = next(kind for kind in kinds if any(isinstance(each, kind) for each in failures))
    refusals = [each for each in failures if each.failure.kind in _REFUSED]
    away = [each for each in failures if isinstance(each, TransientError)]
    return kind("; ".join(map(str, failures)), cause=next(iter((*refusals, *away)), failures[0]))


class CannotStartError(AgentError):
    """The process can't start: a port is taken, a directory can't be written."""
