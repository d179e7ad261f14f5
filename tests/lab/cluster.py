"""Several nodes that are one broker."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from tests.lab.lab import Lab
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.waiting import eventually


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes with one cookie and one name; each is stopped, killed and started as any other."""

    nodes: tuple[Node, ...]

    @classmethod
    def of(
        cls,
        lab: Lab,
        name: str = "cluster",
        *,
        size: int = 3,
        release: str | None = None,
        plugins: Iterable[str] = DEFAULT_PLUGINS,
        conf: Iterable[str] = (),
    ) -> Self:
        """A cluster that is not started yet."""
        shared_name = f"{name}-{secrets.token_hex(4)}"
        cookie = secrets.token_hex()
        plugins, conf = tuple(plugins), tuple(conf)
        nodes = tuple(
            lab.node(name, release=release, plugins=plugins, conf=conf, cluster_name=shared_name, cookie=cookie)
            for _ in range(size)
        )
        peers = [
            "cluster_formation.peer_discovery_backend = classic_config",
            *(f"cluster_formation.classic_config.nodes.{at} = {node.erlang_name}" for at, node in enumerate(nodes, 1)),
        ]
        for node in nodes:
            node.conf += peers
        return cls(nodes)

    @property
    def name(self) -> str:
        return self.nodes[0].cluster_name

    def start(self) -> Self:
        """Start all at once, and wait until each knows all."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()
        eventually(self._is_whole, what=f"cluster {self.name} is whole")
        return self

    def running(self) -> dict[str, set[str]]:
        """Which nodes are up, as each node that is alive sees it."""
        return {
            node.name: {each["name"] for each in node.admin.get("nodes") if each["running"]}
            for node in self.nodes
            if node.alive
        }

    def _is_whole(self) -> bool:
        """Also that each has come to the end of its start: other nodes miss a vhost that is made before, and whoever
        asked for it waits 45 s in vain."""
        all_nodes = {node.erlang_name for node in self.nodes}
        are_known = all(seen == all_nodes for seen in self.running().values())
        return are_known and all(node.eval("rabbit:is_booted().") == "true" for node in self.nodes)
