"""Code of the agent and the simulation's model brokers, in a loop whose time passes when nobody has anything to do."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from tests.simulation.broker.broker import Broker
from tests.simulation.loop import SimulatedLoop, run
from tests.simulation.network import Network

T = TypeVar("T")

HERE, THERE = "127.0.0.3", "127.0.0.2"  # addresses, since names are looked up in threads


class Models:
    """Brokers by the host that they are at."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._chance = Random(1)
        self.network = loop.network = Network(loop, self._chance)

    def broker(self, host: str = HERE, **options: Any) -> Broker:
        made = Broker(self.network, self._chance, host, **options)
        made.listen(host)
        return made


def among_models(live: Callable[[Models], Coroutine[Any, Any, T]]) -> T:
    return run(lambda loop: live(Models(loop)), Random(1))
