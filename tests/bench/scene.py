"""Two brokers that all measures share, and a vhost of one name on both for each run of a side."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, cast

from aio_pika import DeliveryMode

from tests.bench.client import furnish
from tests.bench.load import Worker
from tests.bench.work import EXCHANGES, Work
from tests.lab import user_program
from tests.lab.certificates import Authority, tls_conf
from tests.lab.lab import Lab
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

# What production brokers have; the lab's own are quicker.
CONF: Final = ("collect_statistics_interval = 5000",)
FLOW_DEADLINE: Final = 300.0
POLLER: Final = "poller"
PROBE: Final = "probe"
BETWEEN_PROBES: Final = 0.1
SAMPLE: Final = 50


@dataclass(frozen=True, slots=True)
class Pair:
    """The brokers, and a network between the link and the upstream that is as slow as it is told."""

    lab: Lab
    down: Node
    up: Node
    far: Proxy
    agent_port: int
    tls_port: int  # of the upstream

    @classmethod
    def start(cls, lab: Lab, release: str | None) -> Pair:
        down, up = (
            lab.node(name, cluster_name=name, release=release, plugins=NATIVE_PLUGINS, conf=CONF)
            for name in ("downstream", "upstream")
        )
        tls_port = lab.ports.take()
        up.conf += _tls(up, tls_port)
        for node in (down, up):
            node.launch()
        for node in (down, up):
            node.wait_until_ready()
        return cls(lab, down, up, lab.proxy(up), lab.ports.take(), tls_port)

    @property
    def pids(self) -> dict[str, int]:
        return {name: node.pids("beam.smp")[0] for name, node in (("downstream", self.down), ("upstream", self.up))}

    @contextmanager
    def user_without_events(self) -> Iterator[str]:
        """A downstream administrator with access to the vhosts of the measures and not to that of the broker's events.

        Its password is its name.
        """
        self.down.admin.user(POLLER, POLLER, "administrator")
        try:
            yield POLLER
        finally:
            self.down.admin.delete("users", POLLER)

    @contextmanager
    def scene(
        self,
        round_trip: float = 0.0,
        *,
        exchanges: Iterable[str] = ("x",),
        keys: Iterable[str] = ("k",),
        tls: bool = False,
        work: Work = EXCHANGES,
    ) -> Iterator[Scene]:
        """A fresh vhost on both, furnished; with a round trip, in seconds, the link goes through the proxy."""
        self.far.delay(round_trip / 2)
        scene = Scene(self, f"bench-{secrets.token_hex(4)}", self.far if round_trip else None, tls=tls, work=work)
        for node in (self.down, self.up):
            node.admin.vhost(scene.vhost)
        try:
            if POLLER in {user["name"] for user in self.down.admin.get("users")}:
                self.down.admin.permissions(scene.vhost, POLLER)
            scene.furnish(tuple(exchanges), tuple(keys))
            if work.takes_from_queue:
                scene.furnish_queue_upstream()
            yield scene
        finally:
            for node in (self.down, self.up):
                node.admin.delete_vhost(scene.vhost)


@dataclass(frozen=True, slots=True)
class Scene:
    """One run's vhost. Federated exchanges begin with an x; all of them are bound to one downstream queue."""

    pair: Pair
    vhost: str
    far: Proxy | None
    queue: str = "q"
    exchange: str = "x"
    key: str = "k"
    consumed_at: str = ""
    tls: bool = False
    work: Work = EXCHANGES

    @property
    def down_uri(self) -> str:
        return self.pair.down.uri(self.vhost)

    @property
    def up_uri(self) -> str:
        return self.pair.up.uri(self.vhost)

    @property
    def link_uri(self) -> str:
        """The upstream as the link reaches it."""
        if self.tls:  # who the broker is costs nothing for each message, so nobody asks
            address = self.pair.up.uri(self.vhost, port=self.pair.tls_port).replace("amqp://", "amqps://")
            return f"{address}?verify=verify_none"
        return self.pair.up.uri(self.vhost, port=self.far.port) if self.far else self.up_uri

    @property
    def upstream_queue(self) -> str:
        return f"federation: {self.exchange} -> {self.pair.down.cluster_name}"

    def furnish(self, exchanges: Sequence[str], keys: Sequence[str]) -> None:
        """The exchanges on both sides, the queue and its bindings downstream."""
        bindings = [(exchange, key) for exchange in exchanges for key in keys]
        asyncio.run(furnish(self.up_uri, exchanges=exchanges))
        asyncio.run(furnish(self.down_uri, exchanges=exchanges, queue=self.queue, bindings=bindings))

    def without_link(self) -> Scene:
        """The same with both ends upstream: what a message takes that no link carries."""
        self.furnish_queue_upstream()
        return replace(self, consumed_at=self.up_uri)

    def furnish_queue_upstream(self) -> None:
        """A queue upstream that takes what is published there."""
        asyncio.run(furnish(self.up_uri, queue=self.queue, bindings=[(self.exchange, self.key)]))

    def wait_for_flow(self) -> None:
        """Until a message passes the link, and nothing of what was sent for it is left."""
        routed = taken = 0

        def flows() -> bool:
            nonlocal routed, taken
            routed += user_program.publish(self.up_uri, self.exchange, self.key, [PROBE])
            taken += len(user_program.take(self.down_uri, self.queue, routed - taken, BETWEEN_PROBES))
            return taken > 0

        eventually(flows, FLOW_DEADLINE, what="a message passes the link")
        taken += len(user_program.take(self.down_uri, self.queue, routed - taken))
        assert taken == routed, f"of {routed} probes {taken} arrived"

    def check_sample(self, publisher: Worker, size: int) -> None:
        """Some messages of the load, as a user's program takes them: whole, persistent, and with the link's header if
        it adds one."""
        publisher.ask("publish", count=SAMPLE, size=size, window=SAMPLE).answer()
        came = user_program.messages(self.down_uri, self.queue, SAMPLE)
        found = [
            (message.body, message.delivery_mode, len(cast("list[object]", message.headers.get("x-received-from", []))))
            for message in came
        ]
        assert found == [(bytes(size), DeliveryMode.PERSISTENT, self.work.hops)] * SAMPLE, (
            f"wrong messages: {found[:3]}"
        )

    def worker(self, kind: str, *arguments: str) -> Worker:
        return Worker(kind, *arguments, mark=self.pair.lab.mark)

    def publisher(self) -> Worker:
        return self.worker("publish", self.up_uri, self.exchange, self.key)

    def consumer(self) -> Worker:
        return self.worker("consume", self.down_uri, self.queue)

    def watcher(self) -> Worker:
        """Counts the bindings and consumers that links make upstream."""
        return self.worker("watch", self.pair.up.uri("/"), self.vhost)

    def trickle(self) -> Worker:
        return self.worker(
            "trickle", self.up_uri, self.exchange, self.key, self.consumed_at or self.down_uri, self.queue
        )


def _tls(node: Node, port: int) -> list[str]:
    """A certificate of the node's own, and what it has to know of it."""
    node.directory.mkdir(parents=True)
    authority = Authority.create(node.directory)
    server = authority.server()
    lines = tls_conf(authority, server)
    inside = [line.replace(str(node.directory), node.release.inside(node.directory)) for line in lines]
    return [f"listeners.ssl.1 = 127.0.0.1:{port}", *inside]
