"""By a route of mq-bridge: batches are published, confirmed and then acknowledged by its Rust core."""

from __future__ import annotations

from mq_bridge import Route  # type: ignore[import-not-found]  # in var/peers

from tests.bench.peers.window import PREFETCH


def move(source: str, destination: str, queue: str) -> None:
    route = Route.from_config(
        {
            "input": {"amqp": {"url": source, "queue": queue, "prefetch_count": PREFETCH}},
            "output": {"amqp": {"url": destination, "queue": queue}},
            "required_delivery": "at_least_once",
        }
    )
    route.run()
