"""What links do in a run, as each side is given it: the plugins by the HTTP API, the agent by its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from tests.bench.scene import Scene

POLICY: Final = "federate"
UPSTREAM: Final = "origin"
SHOVEL: Final = "move"


class Work(Protocol):
    """`define` and `begin` are for a plugin; from the second on it has links to run. `remove` ends what deleting the
    vhost wouldn't. `of_vhost` is the agent's configuration of the vhost, before and after. `hops` is how many entries
    of `x-received-from` messages have in the end."""

    @property
    def takes_from_queue(self) -> bool: ...

    @property
    def hops(self) -> int: ...

    def define(self, scene: Scene) -> None: ...

    def begin(self, scene: Scene) -> None: ...

    def remove(self, scene: Scene) -> None: ...

    def of_vhost(self, scene: Scene, *, begins: bool) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Federation:
    """Exchanges or queues whose names match the pattern, with one upstream; `keys` are the agent's own for it."""

    pattern: str
    apply_to: str
    hops: int = 1
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def takes_from_queue(self) -> bool:
        return self.apply_to == "queues"

    def define(self, scene: Scene) -> None:
        scene.pair.down.admin.parameter("federation-upstream", scene.vhost, UPSTREAM, {"uri": scene.link_uri})

    def begin(self, scene: Scene) -> None:
        definition = {"federation-upstream": UPSTREAM}
        scene.pair.down.admin.policy(scene.vhost, POLICY, self.pattern, definition=definition, apply_to=self.apply_to)

    def remove(self, scene: Scene) -> None:
        scene.pair.down.admin.delete("parameters", "federation-upstream", scene.vhost, UPSTREAM)

    def of_vhost(self, scene: Scene, *, begins: bool) -> Mapping[str, Any]:
        definition = {"federation-upstream": UPSTREAM}
        policy = {"pattern": self.pattern, "apply-to": self.apply_to, "definition": definition}
        upstream = {"uri": scene.link_uri, **self.keys}
        return {"upstreams": {UPSTREAM: upstream}, "policies": {POLICY: policy} if begins else {}}


@dataclass(frozen=True, slots=True)
class Shovel:
    """From a queue upstream to the one of the same name downstream, which is given as most users write it, but by its
    address where a proxy listens before it at `port`."""

    takes_from_queue: bool = True
    hops: int = 0
    port: int | None = None

    def destination(self, scene: Scene) -> str:
        """The downstream as a program reaches it that isn't beside it."""
        return scene.pair.down.uri(scene.vhost, port=self.port)

    def define(self, scene: Scene) -> None:
        """A shovel runs as soon as it is defined."""

    def begin(self, scene: Scene) -> None:
        scene.pair.down.admin.parameter("shovel", scene.vhost, SHOVEL, self._definition(scene))

    def remove(self, scene: Scene) -> None:
        scene.pair.down.admin.delete("parameters", "shovel", scene.vhost, SHOVEL)

    def of_vhost(self, scene: Scene, *, begins: bool) -> Mapping[str, Any]:
        return {"shovels": {SHOVEL: self._definition(scene)} if begins else {}}

    def _definition(self, scene: Scene) -> dict[str, str]:
        return {
            "src-uri": scene.link_uri,
            "src-queue": scene.queue,
            "dest-uri": self.destination(scene) if self.port else f"amqp:///{scene.vhost}",
            "dest-queue": scene.queue,
        }


@dataclass(frozen=True, slots=True)
class Amqp10Shovel(Shovel):
    """The same by AMQP 1.0 at both ends, with the addresses of RabbitMQ 4. The plugin takes the vhost only so."""

    def _definition(self, scene: Scene) -> dict[str, str]:
        ends = {"src": scene.pair.up, "dest": scene.pair.down}
        host = quote(f"vhost:{scene.vhost}", safe="")
        return {
            key: value
            for end, node in ends.items()
            for key, value in (
                (f"{end}-protocol", "amqp10"),
                (f"{end}-uri", f"amqp://guest:guest@127.0.0.1:{node.amqp_port}?hostname={host}"),
                (f"{end}-address", f"/queues/{scene.queue}"),
            )
        }


EXCHANGES: Final[Work] = Federation("^x", "exchanges")
QUEUES: Final[Work] = Federation("^q", "queues")
SHOVELS: Final[Work] = Shovel()
AMQP10_SHOVELS: Final[Work] = Amqp10Shovel()
