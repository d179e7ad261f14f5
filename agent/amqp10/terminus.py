"""The address that a connection of AMQP 1.0 is for."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.fields import EMPTY, Table


@dataclass(frozen=True, slots=True)
class Terminus:
    """One address to read from or to write to. `is_bare`: the other end speaks AMQP 1.0, too, so that messages pass as
    they are. `filters` are arguments of a consumer."""

    address: str
    is_source: bool
    is_bare: bool = False
    filters: Table = EMPTY

    @property
    def is_queue(self) -> bool:
        """True if RabbitMQ 4 would take it for a queue's."""
        return self.address.startswith("/queues/")
