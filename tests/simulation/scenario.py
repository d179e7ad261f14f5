"""What a seed stands for: how many agents, which link, how the brokers are, and what goes wrong when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

LINK_QUEUE = "federation: fed -> down"
UP, DOWN = "127.0.0.2", "127.0.0.3"  # addresses, since names are looked up in threads
SOURCE = "source"
TARGET = "target"


class Kind(StrEnum):
    EXCHANGE = "exchange"
    SHOVEL = "shovel"


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    kind: Kind
    replicas: int
    messages: int
    faults: int
    has_plugin: bool
    slowest: float  # seconds on the way
    slowest_disk: float
    high_water: int

    @property
    def upstream_queue(self) -> str:
        return LINK_QUEUE if self.kind is Kind.EXCHANGE else SOURCE


def scenario_of(seed: int, chance: Random) -> Scenario:
    return Scenario(
        seed,
        kind=chance.choice((Kind.EXCHANGE, Kind.EXCHANGE, Kind.SHOVEL)),
        replicas=chance.choice((1, 1, 2, 2, 3)),
        messages=chance.randint(20, 50),
        faults=chance.choice((0, 1, 1, 2, 3)),
        has_plugin=chance.random() < 0.5,
        slowest=chance.choice((0.001, 0.01, 0.05)),
        slowest_disk=chance.choice((0.001, 0.02, 0.2)),
        high_water=chance.choice((512, 64 * 1024)),
    )


@dataclass(frozen=True, slots=True)
class Definitions:
    """What all agents of the group have in their file."""

    kind: Kind
    is_defined: bool = True
    prefetch: int = 1000
    hops: int = 1
    keys: tuple[str, ...] = ("#",)

    def text(self, agent: str) -> str:
        head = f"""
agent: {{name: {agent}, group: simulated, cleanup-after: {{empty: 1, waiting: 2}}}}
downstream: {{uri: "amqp://guest:guest@{DOWN}"}}
"""
        if not self.is_defined:
            return head
        if self.kind is Kind.SHOVEL:
            return (
                head
                + f"""
shovels:
  drain:
    src-uri: amqp://guest:guest@{UP}
    src-queue: {SOURCE}
    dest-uri: amqp://guest:guest@{DOWN}
    dest-queue: {TARGET}
    src-prefetch-count: {self.prefetch}
    reconnect-delay: 2
"""
            )
        keys = ", ".join(f'{{key: "{key}"}}' for key in self.keys)
        return (
            head
            + f"""
upstreams:
  origin:
    uri: amqp://guest:guest@{UP}
    max-hops: {self.hops}
    prefetch-count: {self.prefetch}
    reconnect-delay: 2
upstream-sets: {{all-of-them: [{{upstream: origin}}]}}
exchanges: {{fed: {{type: topic, durable: true, upstream-set: all-of-them}}}}
bindings: {{fed: [{keys}]}}
"""
        )
