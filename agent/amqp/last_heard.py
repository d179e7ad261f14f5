"""When brokers were heard last: one that answered a minute ago is frozen, and its port is no other server's."""

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
    """By address, over all connections that were open there."""

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
        """Whether a connection that is open there was heard since then."""
        return any(each == address and wire.heard > since for wire, each in self._open.items())

    def time_of(self, address: Address) -> str | None:
        """In UTC; with the date if that is over a day ago. None where AMQP was never heard."""
        heard = [wire.heard for wire, each in self._open.items() if each == address]
        if address in self._ended:
            heard.append(self._ended[address])
        if not heard:
            return None
        ago = asyncio.get_running_loop().time() - max(heard)
        shown = datetime.fromtimestamp(time.time() - ago, UTC)
        return shown.strftime("%H:%M:%S" if ago < DAY else "%Y-%m-%d %H:%M:%S")
