"""Many links of an agent: twenty vhosts downstream, each with an upstream set of five vhosts upstream."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.bench.client import furnish
from tests.bench.fleet_agent import FleetAgent
from tests.bench.load import Worker
from tests.bench.scene import Pair
from tests.lab.node import Node
from tests.lab.waiting import eventually

VHOSTS: Final = 20
UPSTREAMS: Final = 5
QUEUE: Final = "q"
KEY: Final = "k"
FEWER: Final = 100  # messages of a link in flight, once the policy was changed
GONE: Final = 900.0  # seconds in which a broker has deleted the vhosts of many links


@dataclass(frozen=True, slots=True)
class Fleet:
    """`count` links: each exchange downstream is federated with all five upstreams, by the one policy of its vhost.

    The first upstream is reached by the pair's proxy, so that it can be away.
    """

    pair: Pair
    count: int
    name: str = field(default_factory=lambda: f"scale-{secrets.token_hex(4)}")

    @property
    def down_vhosts(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(VHOSTS)]

    @property
    def up_vhosts(self) -> list[str]:
        return [f"{self.name}-up-{number}" for number in range(UPSTREAMS)]

    def exchanges(self, vhost: int) -> list[str]:
        """Those of one vhost downstream; no two links share one upstream."""
        return [f"x{vhost}.{number}" for number in range(self.count // VHOSTS // UPSTREAMS)]

    @contextmanager
    def furnished(self) -> Iterator[None]:
        down, up = self.pair.down, self.pair.up
        try:
            for node, vhosts in ((down, self.down_vhosts), (up, self.up_vhosts)):
                for vhost in vhosts:
                    node.admin.vhost(vhost)
            everything = [name for number in range(VHOSTS) for name in self.exchanges(number)]
            for vhost in self.up_vhosts:
                asyncio.run(furnish(up.uri(vhost), exchanges=everything))
            for number, vhost in enumerate(self.down_vhosts):
                names = self.exchanges(number)
                bindings = [(name, KEY) for name in names]
                asyncio.run(furnish(down.uri(vhost), exchanges=names, queue=QUEUE, bindings=bindings))
            yield
        finally:
            for node, vhosts in ((down, self.down_vhosts), (up, self.up_vhosts)):
                for vhost in vhosts:
                    _delete(node, vhost)

    @contextmanager
    def agents(self, number: int) -> Iterator[list[FleetAgent]]:
        """So many of one group, which have no links yet."""
        with ExitStack() as started:
            yield [started.enter_context(FleetAgent(self.pair, self.name, each)) for each in range(number)]

    def vhosts(self, *, with_fewer: bool = False) -> Mapping[str, Any]:
        """The configuration of agents; `with_fewer` is another policy, which touches every link."""
        return {vhost: self._of_vhost(with_fewer=with_fewer) for vhost in self.down_vhosts}

    def _of_vhost(self, *, with_fewer: bool) -> Mapping[str, Any]:
        definition = {"federation-upstream-set": "fewer" if with_fewer else "all"}
        return {
            "upstreams": {name: {"uri": uri} for name, uri in self._upstreams.items()},
            "upstream-sets": {"fewer": [{"upstream": name, "prefetch-count": FEWER} for name in self._upstreams]},
            "policies": {"federate": {"pattern": "^x", "apply-to": "exchanges", "definition": definition}},
        }

    @property
    def _upstreams(self) -> Mapping[str, str]:
        first, *others = self.up_vhosts
        far = self.pair.up.uri(first, port=self.pair.far.port)
        return {"origin-0": far} | {
            f"origin-{number}": self.pair.up.uri(vhost) for number, vhost in enumerate(others, start=1)
        }

    def watcher(self) -> Worker:
        """Counts what links make upstream, in all vhosts."""
        return Worker("watch", self.pair.up.uri("/"), f"{self.name}-up-", mark=self.pair.lab.mark)

    def late_binding(self, number: int) -> Mapping[str, object]:
        """One more, which five links copy."""
        exchange = self.exchanges(0)[number % len(self.exchanges(0))]
        uri = self.pair.down.uri(self.down_vhosts[0])
        return {"uri": uri, "exchange": exchange, "queue": QUEUE, "key": f"late.{number}", "links": UPSTREAMS}


def _delete(node: Node, vhost: str) -> None:
    """Thousands of queues take a broker longer than a request may."""

    def is_gone() -> bool:
        if vhost not in {each["name"] for each in node.admin.get("vhosts")}:
            return True
        node.admin.delete_vhost(vhost)
        return False

    eventually(is_gone, GONE, what=f"vhost {vhost} is deleted", ignoring=(OSError, AssertionError))
