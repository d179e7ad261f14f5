"""The place and reason of each death of a message, from headers that brokers give it, and a choice of messages by them.

`x-death` is a list of tables, one for each queue and reason. The entry that was changed last comes first, so in a cycle
the first death isn't the last entry: `x-first-death-queue` and `x-first-death-reason` say which one it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent.core import fields
from agent.core.fields import Field, Table

DEATHS: Final = "x-death"
_FIRST_QUEUE, _FIRST_REASON = "x-first-death-queue", "x-first-death-reason"
FAMILY: Final = (
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
        return self == ALL

    def takes(self, headers: Table) -> bool:
        if (self.reason or self.died_in) and not any(
            self.reason in {None, each.reason} and self.died_in in {None, each.queue} for each in deaths(headers)
        ):
            return False
        return all(_shown(fields.get(headers, name)) == value for name, value in self.match)


ALL: Final = HeaderChoice()


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
