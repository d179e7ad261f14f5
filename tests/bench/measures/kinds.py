"""Queue links and shovels: how soon a first message comes, how soon many of both run, and what they take."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.request import urlopen

import yaml

from tests.bench.bench import Bench
from tests.bench.process import connections_to, memory_mib
from tests.bench.scene import Scene
from tests.bench.sides import Agent, Ready
from tests.bench.table import Measure, Target
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import shovel
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

BROKERS: Final = 3
FEW, MANY = 200, 1_000
SHARE: Final = 5  # for so many queue links there is a shovel
PATIENCE: Final = 300.0
SETTLED: Final = 5.0
STARTS: Final = 5
BETWEEN_LOOKS: Final = 0.3
MOST_LATER: Final = 50.0  # ms
QUEUE: Final = "w0"


def kinds(bench: Bench) -> list[Measure]:
    """1,000 queue links and 200 shovels to three brokers, from their definitions on; and one queue link's start."""
    count = MANY if bench.full else FEW
    name = f"kinds-{count}"
    found = {
        "time": Measure(f"{name}+{count // SHARE}", "s", (Target(at_most=1.0),)),
        "sockets": Measure(f"{name}-sockets", "connections to each broker", (Target(at_most=20, of_agent=True),)),
        "memory": Measure(f"{name}-memory", "MiB, the agent", (Target(at_most=200, of_agent=True),), digits=0),
        "start": Measure("queue-link-start", "ms to the first message", digits=0),
        "later": Measure("queue-link-later", "ms later", (Target(at_most=MOST_LATER, of_agent=True),), digits=0),
    }
    for side in _turns(bench):
        _many(bench, side, count, found)
    for _ in range(STARTS):
        for side in _turns(bench):
            _start(bench, side, found)
    for value in found["start"].values["agent"]:
        found["later"].add("agent", value - (found["start"].median("native") or 0.0))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Wanted:
    """Queues `w…` that are federated with one broker each, and shovels to them."""

    scene: Scene
    theres: Sequence[Site]
    shovels: int = 0

    @property
    def upstreams(self) -> dict[str, Any]:
        return {f"origin{number}": {"uri": there.uri} for number, there in enumerate(self.theres)}

    @property
    def policies(self) -> dict[str, Any]:
        return {
            name: {"pattern": f"^w{number}", "apply-to": "queues", "definition": {"federation-upstream": name}}
            for number, name in enumerate(self.upstreams)
        }

    @property
    def defined_shovels(self) -> dict[str, Any]:
        here = Site(self.scene.pair.down, self.scene.vhost)
        return {
            f"s{number}": shovel(
                here, self.theres[number % len(self.theres)], src_queue=f"src{number}", dest_queue=f"dest{number}"
            )
            for number in range(self.shovels)
        }


class Side(Protocol):
    name: str

    def ready(self, wanted: Wanted) -> AbstractContextManager[Ready]: ...

    def running(self, wanted: Wanted) -> int:
        """How many links and shovels."""


class NativeKinds:
    name = "native"

    @contextmanager
    def ready(self, wanted: Wanted) -> Iterator[Ready]:
        scene = wanted.scene
        admin = scene.pair.down.admin
        for name, value in wanted.upstreams.items():
            admin.parameter("federation-upstream", scene.vhost, name, value)
        shovels = [
            {"component": "shovel", "name": name, "value": value} for name, value in wanted.defined_shovels.items()
        ]
        policies = [{"name": name, "priority": 0, **policy} for name, policy in wanted.policies.items()]

        def go() -> None:
            with suppress(TimeoutError):  # a broker answers once it has begun with all of it
                admin.post("definitions", scene.vhost, body={"policies": policies, "parameters": shovels})

        yield Ready(go, processes={})

    def running(self, wanted: Wanted) -> int:
        admin = wanted.scene.pair.down.admin
        links = admin.get("federation-links", wanted.scene.vhost)
        shovels = admin.get("shovels", wanted.scene.vhost) if wanted.shovels else []
        states = [*(each["status"] for each in links), *(each["state"] for each in shovels)]
        return states.count("running")


@dataclass(frozen=True, slots=True)
class _Configured(Agent):
    wanted: Wanted | None = None

    def configuration(self, scene: Scene, port: int, *, begins: bool) -> str:
        # Named, as a dataclass with slots has another class cell.
        document = yaml.safe_load(Agent.configuration(self, scene, port, begins=begins))
        wanted = self.wanted
        assert wanted
        defined = {"upstreams": wanted.upstreams, "policies": wanted.policies, "shovels": wanted.defined_shovels}
        document["vhosts"] = {scene.vhost: defined} if begins else {}
        return yaml.safe_dump(document)


class AgentKinds:
    name = "agent"

    def ready(self, wanted: Wanted) -> AbstractContextManager[Ready]:
        return _Configured(wanted=wanted).ready(wanted.scene)

    def running(self, wanted: Wanted) -> int:
        with urlopen(f"http://127.0.0.1:{wanted.scene.pair.agent_port}/api/links", timeout=30) as answer:
            return sum(each["status"] == "running" for each in json.load(answer))


NATIVE, AGENT = NativeKinds(), AgentKinds()


def _turns(bench: Bench) -> Iterator[Side]:
    for run in range(bench.runs):
        yield from (NATIVE, AGENT) if run % 2 == 0 else (AGENT, NATIVE)


@contextmanager
def _wanted(bench: Bench, count: int, shovels: int) -> Iterator[Wanted]:
    """The downstream's queues exist; those upstream are missing."""
    pair = bench.pair
    with pair.scene(exchanges=()) as scene, ExitStack() as vhosts:
        names = [f"{scene.vhost}-{number}" for number in range(BROKERS)]
        theres = [Site(pair.up, vhosts.enter_context(pair.up.admin.temporary_vhost(name))) for name in names]
        queues = [
            {"name": f"w{number % BROKERS}.{number}" if number else QUEUE, "durable": True, "auto_delete": False}
            for number in range(count)
        ]
        declared = [each | {"arguments": {}} for each in queues]
        pair.down.admin.post("definitions", scene.vhost, body={"queues": declared})
        yield Wanted(scene, theres, shovels)


def _many(bench: Bench, side: Side, count: int, found: dict[str, Measure]) -> None:
    shovels = count // SHARE
    with _wanted(bench, count, shovels) as wanted:
        sockets = connections_to((bench.pair.up.amqp_port,))
        with side.ready(wanted) as ready:
            began = ready.start()
            eventually(
                lambda: _now_and_then(side.running(wanted)) == count + shovels,
                PATIENCE,
                what="all links and shovels run",
                ignoring=OSError,
            )
            found["time"].add(side.name, time.monotonic() - began)
            time.sleep(SETTLED)
            found["sockets"].add(side.name, (connections_to((bench.pair.up.amqp_port,)) - sockets) / BROKERS)
            for pid in ready.processes.values():
                found["memory"].add(side.name, memory_mib(pid))


def _now_and_then(found: int) -> int:
    """An answer costs whoever is measured some time, too."""
    time.sleep(BETWEEN_LOOKS)
    return found


def _start(bench: Bench, side: Side, found: dict[str, Measure]) -> None:
    """A consumer waits downstream and messages upstream when the policy comes."""
    with _wanted(bench, 1, 0) as wanted, side.ready(wanted) as ready:
        there = wanted.theres[0]
        there.node.admin.queue(there.vhost, QUEUE)
        there.publish(numbered(10), QUEUE, exchange="")
        consumer = wanted.scene.worker("consume", wanted.scene.down_uri, QUEUE)
        with consumer:
            consumer.ask("count", count=1)
            time.sleep(1.0)  # until the broker has told of the consumer
            began = ready.start()
            found["start"].add(side.name, (consumer.answer(PATIENCE)["first"] - began) * 1000)
