"""What federates: vhosts of brokers, and what stands in them. A vhost of a cluster is a site of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from aio_pika.abc import HeadersType

from tests.lab import user_program
from tests.lab.admin import AdminError
from tests.lab.node import Node
from tests.lab.user_program import numbered
from tests.lab.waiting import DEADLINE, eventually

X: Final = "fed.x"
Q: Final = "q"
BATCH: Final = 50
PAUSE: Final = 0.01  # seconds between two of them


@dataclass(frozen=True, slots=True)
class Site:
    node: Node
    vhost: str

    @property
    def uri(self) -> str:
        return self.node.uri(self.vhost)

    def exchange(self, name: str = X, kind: str = "topic", **flags: Any) -> Site:
        self.node.admin.exchange(self.vhost, name, kind, **flags)
        return self

    def queue(
        self, *keys: str, name: str = Q, exchange: str = X, arguments: Mapping[str, object] | None = None
    ) -> Site:
        """A queue, bound with each key."""
        self.node.admin.queue(self.vhost, name)
        for key in keys:
            self.bind(key, name=name, exchange=exchange, arguments=arguments)
        return self

    def bind(self, key: str = "", *, name: str = Q, exchange: str = X, **more: Any) -> Site:
        self.node.admin.bind(self.vhost, exchange, name, key, **more)
        return self

    def unbind(self, key: str, *, name: str = Q, exchange: str = X) -> None:
        path = ("bindings", self.vhost, "e", exchange, "q", name)
        [found] = [each for each in self.node.admin.get(*path) if each["routing_key"] == key]
        self.node.admin.delete(*path, found["properties_key"])

    def delete_exchange(self, name: str = X) -> None:
        self.node.admin.delete("exchanges", self.vhost, name)

    def delete_queue(self, name: str = Q) -> None:
        self.node.admin.delete("queues", self.vhost, name)

    def publish(
        self, bodies: Iterable[str], key: str = "k", *, exchange: str = X, headers: HeadersType | None = None
    ) -> int:
        """Publishes as users' programs do; how many were routed to a queue."""
        return user_program.publish(self.uri, exchange, key, bodies, headers)

    def take(self, count: int, *, queue: str = Q, deadline: float = DEADLINE) -> list[str]:
        return user_program.take(self.uri, queue, count, deadline)

    def federated_bindings(self, exchange: str = X) -> list[dict[str, Any]]:
        """What links keep bound to this exchange."""
        try:
            found = self.node.admin.get("exchanges", self.vhost, exchange, "bindings", "source")
        except AdminError:
            return []
        return [each for each in found if each["destination"].startswith("federation: ")]

    def wait_bound(self, *keys: str, exchange: str = X, deadline: float = DEADLINE) -> None:
        """Until exactly these keys are bound for links."""

        def bound() -> list[str]:
            return sorted(each["routing_key"] for each in self.federated_bindings(exchange))

        eventually(lambda: bound() == sorted(keys), deadline, what=f"{keys} bound to {exchange}, not {bound()}")

    def links_objects(self) -> list[str]:
        """The names of all queues and exchanges that links keep here."""
        found = [*self.node.admin.get("queues", self.vhost), *self.node.admin.get("exchanges", self.vhost)]
        return sorted(each["name"] for each in found if each["name"].startswith("federation: "))

    def canaries(self) -> list[dict[str, Any]]:
        """The exchanges that show whether an upstream exchange was deleted."""
        found = self.node.admin.get("exchanges", self.vhost)
        return [each for each in found if each["name"].startswith("federation-agent: ")]

    def wait_canary(self) -> str:
        """The name of the one canary, once it is there: links place theirs while they run."""
        [found] = eventually(self.canaries, what="there is a canary")
        return str(found["name"])

    def wait_clean(self, deadline: float = DEADLINE) -> None:
        what = f"nothing of links is left in {self.vhost}"
        eventually(lambda: not self.links_objects() and not self.canaries(), deadline, what=what, ignoring=AdminError)

    def wait_unconsumed(self, queue: str = "") -> None:
        """Until nobody consumes from the queue, or from any: a link is shown as paused while its last messages still
        flow. The HTTP API would be seconds late."""
        consumed = (
            "[element(4, proplists:get_value(queue_name, Each)) || "
            f'Each <- rabbit_amqqueue:consumers_all(<<"{self.vhost}">>)]'
        )
        code = f'not lists:member(<<"{queue}">>, {consumed}).' if queue else f"{consumed} == []."
        what = f"nobody consumes from {queue or 'any queue'} in {self.vhost}"
        eventually(lambda: self.node.eval(code) == "true", DEADLINE, what=what)

    def wait_depth(self, count: int, queue: str, deadline: float = DEADLINE) -> None:
        """Until so many messages are in the queue, as statistics tell it."""

        def depth() -> bool:
            return bool(self.node.admin.get("queues", self.vhost, queue).get("messages") == count)

        eventually(depth, deadline, what=f"{count} messages in {queue}", ignoring=AdminError)


@contextmanager
def stream(site: Site) -> Iterator[list[str]]:
    """Publishes all the while; what it has published is known at the end."""
    published: list[str] = []
    is_over = threading.Event()

    def publish() -> None:
        while not is_over.is_set():
            batch = numbered(BATCH, len(published))
            site.publish(batch)
            published.extend(batch)
            time.sleep(PAUSE)

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        yield published
    finally:
        is_over.set()
        publishing.join(DEADLINE)
        assert not publishing.is_alive()


def upstreams(*sites: Site, **settings: Any) -> dict[str, Any]:
    """The upstreams of a vhost: `origin`, or where there are several `origin1`, `origin2` …"""
    names = ["origin"] if len(sites) == 1 else [f"origin{number}" for number in range(1, len(sites) + 1)]
    return {name: {"uri": site.uri} | settings for name, site in zip(names, sites, strict=True)}


def policies() -> dict[str, Any]:
    """A new mapping each time: what a test changes in it is no other test's."""
    definition = {"federation-upstream-set": "all"}
    return {"federate": {"pattern": r"^fed\.", "apply-to": "exchanges", "definition": definition}}


def federated(*sites: Site, **settings: Any) -> dict[str, Any]:
    """What a vhost needs to have its exchanges `fed.…` federated with these sites."""
    return {"upstreams": upstreams(*sites, **settings), "policies": policies()}
