"""Decides for a move which messages go where, by their headers, and which of them stay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from agent.amqp.connect import Connection
from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.data.refused import comes_too_often
from agent.amqp.data.rewriting import Delivery, Destination, Untouched
from agent.amqp.declares import declare_any
from agent.amqp.failures import NOT_FOUND
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.properties import HEADERS, Properties
from agent.amqp.wire.tables import MAX_SHORT, CodecError, short_string
from agent.core import fields
from agent.core.fields import EMPTY, Table
from agent.core.rules import moves
from agent.core.rules.moves import (
    LOOKED_AT,
    NO_DEATH,
    NO_EXCHANGE,
    NOT_ALLOWED,
    NOT_CHOSEN,
    RETURNED,
    USUALLY_HELD,
    HeaderChoice,
    MoveAccount,
)
from agent.core.rules.quarantine import QuarantineReason
from agent.links.flow import Flow

MOST_EXCHANGES: Final = 10_000
COMES_TOO_OFTEN: Final = (
    "a message that stays has come back so often that its queue would drop it soon, so no more were taken: move all "
    "messages, or raise the queue's delivery limit"
)
MOST_DESTINATIONS: Final = 1_000
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """The options of a move. Without a `destination` each message goes to where its first death found it. `limit` is
    the most messages to take of those that are chosen, `scan` the most that may be held because they stay, `rate` the
    most in a second."""

    queue: str
    destination: Destination | None = None
    choice: HeaderChoice = moves.EVERYTHING
    until_empty: bool = False
    limit: int | None = None
    scan: int = USUALLY_HELD
    rate: int | None = None
    strips_deaths: bool = False
    is_dry: bool = False

    @property
    def is_choosy(self) -> bool:
        """True if each message has to be looked at."""
        return self.destination is None or not self.choice.is_of_all or self.is_dry

    @property
    def goes_to_one_place(self) -> bool:
        """True if it is known where each message goes, without looking at it."""
        wanted = self.destination
        return self.choice.is_of_all and wanted is not None and None not in {wanted.exchange, wanted.routing_key}


class StripDeaths(Untouched):
    """Removes the headers that brokers add to dead letters."""

    marks = tuple(map(short_string, moves.DEATH_HEADERS))
    _names = Names(*moves.DEATH_HEADERS)

    def rewrite(self, headers: bytes, _: Delivery) -> bytes:
        return header_table.without(headers, self._names)


class Exchanges:
    """Finds out which exchanges exist at the destination: publishing to a missing one would close the channel. While
    one is looked for, the connection to the source is held. `found` is what is known by former sessions."""

    def __init__(self, source: Connection, destination: Connection, found: dict[str, str]) -> None:
        self._inbound = source.wire.inbound
        self._destination = destination
        self._found = found
        self._asked: asyncio.Queue[str] = asyncio.Queue()

    def objection(self, exchange: str) -> str | None:
        """The reason why nothing can be published to an exchange, empty if it can be; None if that isn't known yet."""
        found = self._found.get(exchange) if exchange else ""
        if found is None:
            self._inbound.hold(self)
            self._asked.put_nowait(exchange)
        return found

    async def look(self) -> None:
        """Look for those that are asked for, until cancelled."""
        while True:
            exchange = await self._asked.get()
            found = await declare_any(self._destination, "exchange", exchange, spare=None, passive=True)
            if len(self._found) >= MOST_EXCHANGES:
                self._found.clear()
            self._found[exchange] = _objection(found) if isinstance(found, ChannelClosedError) else ""
            self._inbound.release(self)

    def close(self) -> None:
        self._inbound.release(self)


def _objection(error: ChannelClosedError) -> str:
    return NO_EXCHANGE if error.code in {0, NOT_FOUND} else NOT_ALLOWED


class MoveChooser:
    """Decides of each message where it goes, or why it stays; a dry run lets all of them stay."""

    def __init__(
        self,
        options: MoveOptions,
        account: MoveAccount,
        exchanges: Exchanges,
        flow: Flow,
        *,
        returns_are_counted: bool,
    ) -> None:
        self._options = options
        self._account = account
        self._exchanges = exchanges
        self._flow = flow
        self._returns_are_counted = returns_are_counted
        self._left = None if options.limit is None else options.limit - account.moved

    def choose(self, properties: bytes, delivery: Delivery, size: int) -> bytes | str | None:
        try:
            found = self._decide(properties, delivery)
            goes_back = isinstance(found, str) or (found is not None and self._options.is_dry)
            if goes_back and self._returns_are_counted and comes_too_often(properties):
                self._flow.take_no_more()
                self._account.notes.append(COMES_TOO_OFTEN)
                return RETURNED
            if isinstance(found, tuple):
                return self._send(found, properties, delivery, size)
        except CodecError:
            return QuarantineReason.UNREADABLE
        return found

    def _send(self, address: tuple[bytes, bytes], properties: bytes, delivery: Delivery, size: int) -> bytes | str:
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self._flow.take_no_more()
        if self._options.is_dry:
            self._show(address, properties, delivery, size)
            return LOOKED_AT
        return b"".join(bytes([len(name)]) + name for name in address)

    def _decide(self, properties: bytes, delivery: Delivery) -> tuple[bytes, bytes] | str | None:
        options, wanted = self._options, self._options.destination
        headers: Table = EMPTY
        if not options.choice.is_of_all or wanted is None:
            read = Properties.read(properties)
            headers = read.headers if read.flags & HEADERS else EMPTY
        if not options.choice.takes(headers):
            return NOT_CHOSEN
        if wanted is not None:
            exchange = delivery.exchange if wanted.exchange is None else _encoded(wanted.exchange)
            return exchange, delivery.routing_key if wanted.routing_key is None else _encoded(wanted.routing_key)
        found = moves.origin(headers)
        if found is None or any(len(_encoded(name)) > MAX_SHORT for name in found):
            return NO_DEATH
        objection = self._exchanges.objection(found[0])
        return objection if objection is None or objection else (_encoded(found[0]), _encoded(found[1]))

    def _show(self, address: tuple[bytes, bytes], properties: bytes, delivery: Delivery, size: int) -> None:
        account, (exchange, key) = self._account, map(_decoded, address)
        if (exchange, key) in account.destinations or len(account.destinations) < MOST_DESTINATIONS:
            account.destinations[exchange, key] += 1
        if len(account.first) < SHOWN:
            headers = _plain(fields.table_to_json(Properties.read(properties).headers))
            of_delivery = {"bytes": size, "redelivered": delivery.redelivered, "headers": headers}
            account.first.append({"exchange": exchange, "routing_key": key, **of_delivery})


def _plain(value: Any) -> Any:
    """The value with text in place of bytes."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return _decoded(value)
    return value


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "replace")
