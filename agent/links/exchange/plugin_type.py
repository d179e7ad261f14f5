"""Which upstream brokers know the federation plugin's exchange type, as it was found out last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from agent.amqp.connection_pool import Shared
from agent.core.addresses.uri import AmqpUri


@dataclass
class Found:
    """Of the broker at the end of one connection; `is_known` is None until it was asked, at `asked_at`."""

    is_known: bool | None = None
    asked_at: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class PluginTypes:
    """What one link found out holds for all links of that connection."""

    def __init__(self) -> None:
        self.endpoints: set[AmqpUri] = set()  # that knew the type last
        self._found: WeakKeyDictionary[Shared, Found] = WeakKeyDictionary()

    def of(self, control: Shared) -> Found:
        return self._found.setdefault(control, Found())
