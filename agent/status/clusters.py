"""Names of clusters by address: a link that never connected learns the name from those that did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from agent.core.addresses.uri import AmqpUri

MOST: Final = 10_000
Address = tuple[str, int]


def address_of(uri: AmqpUri) -> Address:
    return uri.connect_host.lower(), uri.connect_port


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as operators know it: by its cluster's name where that is known, else by its address."""

    name: str
    is_known: bool  # by its cluster's name
    is_downstream: bool


@dataclass(slots=True)
class Clusters:
    """`downstream` are the addresses of the agent's own; it remembers the names at `most` addresses."""

    downstream: frozenset[Address] = frozenset()
    most: int = MOST
    _names: dict[Address, str] = field(default_factory=dict)

    def learn(self, uri: AmqpUri, cluster: str) -> bool:
        """Store the name of a cluster; True if it is another one than before."""
        address = address_of(uri)
        before = self._names.pop(address, None)
        self._names[address] = cluster
        if len(self._names) > self.most:
            del self._names[next(iter(self._names))]
        return before != cluster

    def name_of(self, uris: Iterable[AmqpUri]) -> str | None:
        """The first name that is known for these addresses."""
        return next((name for uri in uris if (name := self._names.get(address_of(uri))) is not None), None)

    def is_downstream(self, uri: AmqpUri) -> bool:
        return uri.is_downstream_itself or address_of(uri) in self.downstream
