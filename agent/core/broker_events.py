"""The events of a broker on `amq.rabbitmq.event`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EVENT_EXCHANGE = "amq.rabbitmq.event"


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """`name` is the routing key (`policy.set`); `fields` are the event's headers, tables as dicts."""

    name: str
    fields: Mapping[str, Any]

    @property
    def vhost(self) -> str | None:
        value = self.fields.get("vhost")
        return value if isinstance(value, str) else None
