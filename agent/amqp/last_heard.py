"""Keeps when brokers were last heard from: one that answered a minute ago and doesn't now is frozen, and its port isn't
another server's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final

from agent.amqp.wire.connection import WireConnection

MOST: Final = 1_000  # addresses
DAY: Final = 86_400

Address = tuple[str, int]


class LastHeard:
    """The last time that anything was received from each address, over all connections that were open there."""

    def __init__(self) -> None:
        self._open: dict[WireConnection, Address] = {}
        self._ended: dict[Address, float] = {}  # by the loop's clock

    def follow(self, wire: WireConnection, address: Address) -> None:
        self._open[wire] = address
        wire.closed.add_done_callback(lambda _: self._end(wire))

    def _end(self, wire: WireConnection) -> None:
        address = self._open.pop(wire)
        self._ended[address] = max(wire.heard, self._ended.pop(address, 0.0))
        if len(self._ended) > MOST:
            self._ended.pop(next(iter(self._ended)))

    def is_answering(self, address: Address, since: float) -> bool:
        """True if a connection that is open there has received anything since then."""
        return any(each == address and wire.heard > since for wire, each in self._open.items())

    def time_of(self, address: Address) -> str | None:
        """The UTC time when the address was last heard from, with the date if that is over a day ago; None if no AMQP
        connection was open there."""
        heard = [wire.heard for wire, each in self._open.items() if each == address]
        if address in self._ended:
            heard.append(self._ended[address])
        if not heard:
            return None
        ago = asyncio.get_running_loop().time() - max(heard)
        shown = datetime.fromtimestamp(time.time() - ago, UTC)
        return shown.strftime("%H:%M:%S" if ago < DAY else "%Y-%m-%d %H:%M:%S")
