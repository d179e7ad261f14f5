"""Every measure by the name that `--only` takes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from tests.bench.bench import Bench
from tests.bench.measures import (
    bindings,
    kinds,
    latency,
    links,
    memory,
    peers,
    pipeline,
    rules,
    scale,
    scrapes,
    splice,
    throughput,
)
from tests.bench.table import Measure

Measuring: TypeAlias = Callable[[Bench], list[Measure]]

MEASURES: Final[Mapping[str, Measuring]] = {
    "live": throughput.live,
    "drain": throughput.drain,
    "shovel-live": throughput.shovel_live,
    "shovel-drain": throughput.shovel_drain,
    "amqp10-drain": throughput.amqp10_drain,
    "queue-link-drain": throughput.queue_drain,
    "live-tls": throughput.live_tls,
    "live-100ms": throughput.live_far,
    "bindings": bindings.at_once,
    "bindings-100ms": bindings.at_once_far,
    "late-binding": bindings.late,
    "flow-again": bindings.again,
    "links": links.links,
    "replicas": links.replicas,
    "kinds": kinds.kinds,
    "latency": latency.latency,
    "rules": rules.rules,
    "scrapes": scrapes.scrapes,
    "slow-downstream": memory.slow_downstream,
    "pipeline": pipeline.report,
    "peers": peers.peers,
    "scale": scale.scale,
}

ONLY_BY_NAME: Final = frozenset({"peers", "scale"})  # one installs packages, the other takes an hour

WITHOUT_BROKERS: Final[Mapping[str, Callable[[], list[Measure]]]] = {"splice": splice.splice}
