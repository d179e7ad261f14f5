"""What a seed stands for: how many agents, which link, how the brokers are, and what goes wrong when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

LINK_QUEUE = "federation: fed -> down"
UP, DOWN = "127.0.0.2", "127.0.0.3"  # addresses, since names are looked up in threads
SOURCE = "source"
TARGET = "target"
JOBS = "jobs"  # at both ends of a queue link


class Kind(StrEnum):
    EXCHANGE = "exchange"
    SHOVEL = "shovel"
    QUEUE = "queue"


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
    has_events: bool  # of queue links, this and what follows
    lists_late: float  # seconds, of the HTTP API
    lacks_queue: bool  # upstream, so the link declares it
    user_prefetch: int
    slowest_user: float  # seconds for a message
    release: str  # of both brokers

    @property
    def upstream_queue(self) -> str:
        return {Kind.EXCHANGE: LINK_QUEUE, Kind.SHOVEL: SOURCE, Kind.QUEUE: JOBS}[self.kind]


def scenario_of(seed: int, chance: Random) -> Scenario:
    return Scenario(
        seed,
        kind=chance.choice((Kind.EXCHANGE, Kind.EXCHANGE, Kind.SHOVEL, Kind.QUEUE)),
        replicas=chance.choice((1, 1, 2, 2, 3)),
        messages=chance.randint(20, 50),
        faults=chance.choice((0, 1, 1, 2, 3)),
        has_plugin=chance.random() < 0.5,
        slowest=chance.choice((0.001, 0.01, 0.05)),
        slowest_disk=chance.choice((0.001, 0.02, 0.2)),
        high_water=chance.choice((512, 64 * 1024)),
        has_events=chance.random() < 0.8,
        lists_late=chance.choice((0.0, 1.0, 5.0)),
        lacks_queue=chance.random() < 0.3,
        user_prefetch=chance.choice((1, 5, 0)),
        slowest_user=chance.choice((0.0, 0.02, 0.1)),
        release=Random(f"release of {seed}").choice(("3.10.8", "4.3.6")),
    )


@dataclass(frozen=True, slots=True)
class Definitions:
    """What all agents of the group have in their file."""

    kind: Kind
    is_defined: bool = True
    prefetch: int = 1000
    hops: int = 1
    keys: tuple[str, ...] = ("#",)
    tag: str = "one"

    def text(self, agent: str) -> str:
        is_read = self.kind is Kind.QUEUE  # queues, and who consumes from them, are known by the HTTP API
        management = f', management: "http://guest:guest@{DOWN}:15672"' if is_read else ""
        head = f"""
agent: {{name: {agent}, group: simulated, cleanup-after: {{empty: 1, waiting: 2}}}}
downstream: {{uri: "amqp://guest:guest@{DOWN}"{management}}}
definitions: {{management: false}}
"""
        of_kind = {Kind.EXCHANGE: self._exchange, Kind.SHOVEL: self._shovel, Kind.QUEUE: self._queue}
        return head + of_kind[self.kind]() if self.is_defined else head

    def _shovel(self) -> str:
        return f"""
shovels:
  drain:
    src-uri: amqp://guest:guest@{UP}
    src-queue: {SOURCE}
    dest-uri: amqp://guest:guest@{DOWN}
    dest-queue: {TARGET}
    src-prefetch-count: {self.prefetch}
    reconnect-delay: 2
"""

    def _queue(self) -> str:
        return f"""
upstreams:
  origin:
    uri: amqp://guest:guest@{UP}
    prefetch-count: {self.prefetch}
    consumer-tag: {self.tag}
    reconnect-delay: 2
policies: {{spread: {{pattern: ^{JOBS}$, apply-to: queues, definition: {{federation-upstream: origin}}}}}}
"""

    def _exchange(self) -> str:
        keys = ", ".join(f'{{key: "{key}"}}' for key in self.keys)
        return f"""
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
