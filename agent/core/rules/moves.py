"""What a move takes from a queue, and its account: what became of each message, and why some are left.

Messages are chosen by their headers, also by where and why they were dead-lettered. `x-death` is a list of tables, one
for each queue and reason. The entry that was changed last comes first, so in a cycle the first death isn't the last
entry: `x-first-death-queue` and `x-first-death-reason` say which one it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from agent.core import fields
from agent.core.fields import Field, Table
from agent.core.rules.quarantine import QuarantineReason
from agent.errors import BrokerError

DEATHS: Final = "x-death"
_FIRST_QUEUE, _FIRST_REASON = "x-first-death-queue", "x-first-death-reason"
DEATH_HEADERS: Final = (
    DEATHS,
    *(f"x-{which}-death-{part}" for which in ("first", "last") for part in ("exchange", "queue", "reason")),
)


class Death(NamedTuple):
    """A message left `queue` for `reason`; it had been published to `exchange` with `routing_key`."""

    queue: str
    reason: str
    exchange: str
    routing_key: str


def deaths(headers: Table) -> Iterator[Death]:
    """The deaths that can be read, in the order of the header."""
    found = fields.get(headers, DEATHS)
    for each in found.value if found is not None and found.tag == "A" and isinstance(found.value, tuple) else ():
        if each.tag != "F" or not isinstance(each.value, tuple):
            continue
        keys = fields.get(each.value, "routing-keys")
        key = keys.value[0] if keys is not None and isinstance(keys.value, tuple) and keys.value else None
        queue, reason, exchange = (_text(fields.get(each.value, name)) for name in ("queue", "reason", "exchange"))
        death = Death(queue, reason, exchange, _text(key))
        if death.queue:
            yield death


def first_death(headers: Table) -> Death | None:
    """The first death; None if the headers don't show it."""
    found, named = (
        list(deaths(headers)),
        tuple(_text(fields.get(headers, each)) for each in (_FIRST_QUEUE, _FIRST_REASON)),
    )
    return next((each for each in reversed(found) if each[:2] == named), found[-1] if found else None)


def origin(headers: Table) -> tuple[str, str] | None:
    """The exchange and routing key that a message was published to before its first death. Through the default exchange
    it goes to the queue itself, whatever other keys it had."""
    death = first_death(headers)
    if death is None:
        return None
    return (death.exchange, death.routing_key) if death.exchange else ("", death.queue)


@dataclass(frozen=True, slots=True)
class HeaderChoice:
    """A choice of messages by their headers: one death has the `reason` and the queue `died_in`, as far as these are
    given, and each header of `match` has its value, as text."""

    reason: str | None = None
    died_in: str | None = None
    match: tuple[tuple[str, str], ...] = ()

    @property
    def is_of_all(self) -> bool:
        return self == EVERYTHING

    def takes(self, headers: Table) -> bool:
        if (self.reason or self.died_in) and not any(
            self.reason in {None, each.reason} and self.died_in in {None, each.queue} for each in deaths(headers)
        ):
            return False
        return all(_shown(fields.get(headers, name)) == value for name, value in self.match)


EVERYTHING: Final = HeaderChoice()


def _shown(value: Field | None) -> str | None:
    """A header's value as it is written on a command line; None if there is none, or if it holds others."""
    match value:
        case None | Field("A" | "F"):
            return None
        case Field("t", bool(truth)):
            return "true" if truth else "false"
        case Field(_, bytes(raw)):
            return raw.decode(errors="surrogateescape")
        case Field(_, None):
            return ""
        case Field(_, other):
            return str(other)


def _text(value: Field | None) -> str:
    return value.value if value is not None and isinstance(value.value, str) else ""


USUALLY_HELD: Final = 10_000

REFUSED: Final = "refused"
UNROUTABLE: Final = "unroutable"
NOT_CHOSEN: Final = "not_chosen"
NO_DEATH: Final = "never_dead_lettered"
NO_EXCHANGE: Final = "no_exchange"
NOT_ALLOWED: Final = "exchange_not_allowed"
RETURNED: Final = str(QuarantineReason.RETURNED)
IN_DOUBT: Final = "in_doubt"
LOOKED_AT: Final = "looked_at"
REASONS: Final[Mapping[str, str]] = {
    REFUSED: "the destination refused it (basic.nack): is its queue full?",
    UNROUTABLE: "the destination has no queue for it",
    NO_EXCHANGE: "the exchange of its first death doesn't exist at the destination",
    NOT_ALLOWED: "the user of the destination may not publish to the exchange of its first death, or look for it",
    NO_DEATH: "its headers show no exchange or queue that it was in before",
    NOT_CHOSEN: "not chosen by the options",
    RETURNED: "its queue would drop it if it came back some more times",
    IN_DOUBT: "not confirmed when the move ended: it may be at both ends",
    QuarantineReason.TOO_LARGE: "larger than the destination takes",
    QuarantineReason.HEADERS_TOO_LARGE: "its headers fit into no frame of the destination",
    QuarantineReason.UNREADABLE: "its properties can't be read",
    QuarantineReason.CLOSES: "the destination closes the connection or channel over it",
}


@dataclass
class MoveAccount:
    """The result of a move: the messages that were taken have moved, or are left for a reason."""

    there: int = 0  # when it began
    moved: int = 0
    taken: int = 0
    left: Counter[str] = field(default_factory=Counter)
    waiting: int | None = None  # in the queue afterwards, None if that couldn't be asked
    counts_deliveries: bool = False  # what is left counts as delivered once more
    notes: list[str] = field(default_factory=list)  # why it ended early
    error: BrokerError | None = None
    seconds: float = 0.0
    destinations: Counter[tuple[str, str]] = field(default_factory=Counter)  # of a dry run
    first: list[dict[str, Any]] = field(default_factory=list)  # the same

    @property
    def is_complete(self) -> bool:
        """True if all that was chosen has moved."""
        return not (self.error or self.notes or self.left.keys() - {NOT_CHOSEN, LOOKED_AT})
