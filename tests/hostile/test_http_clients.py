"""Whatever hundreds of HTTP clients do, links flow and reconnect, probes are answered, SIGTERM is obeyed."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.bench.process import memory_mib
from tests.hostile.clients import CLIENTS, HostileClients, Speak
from tests.hostile.scene import ANSWERED_WITHIN, GOOD, MEMORY, Scene
from tests.integration.federation.sites import policies
from tests.lab.lab import Lab
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE, eventually
from tests.tiers import thorough

DESCRIPTORS: Final = 256
FLOODED: Final = 300  # connections before the links are cut, more than there are descriptors


@pytest.mark.parametrize(
    "waves", [[tuple(CLIENTS.values())], thorough([(kind,) for kind in CLIENTS.values()])], ids=["mixed", "one by one"]
)
def test_hostile_clients_take_nothing_from_links(scene: Scene, lab: Lab, waves: Sequence[Sequence[Speak]]) -> None:
    """All kinds of them together, and hundreds of each kind, one agent after the other, which stops among them."""
    agent = scene.agent
    scene.there.exchange()
    scene.here.exchange().queue("#", name=GOOD)
    with Proxy(scene.there.node.amqp_port, mark=lab.mark) as proxy:
        uri = scene.there.uri.replace(f":{scene.there.node.amqp_port}", f":{proxy.port}")
        upstreams = {"origin": {"uri": uri, "reconnect-delay": 1}}
        agent.write({scene.here.vhost: {"upstreams": upstreams, "policies": policies()}})
        for kinds in waves:
            ran = runs(scene)
            agent.start("tests.hostile.few_descriptors")
            wait_runs_again(scene, ran)
            before = memory_mib(agent.pid)
            with HostileClients(agent.port, *kinds) as clients:
                eventually(lambda come=clients: come.connected > FLOODED, what="clients are connected")  # type: ignore[misc]
                endure(scene, proxy)
                assert memory_mib(agent.pid, peak=True) - before < MEMORY
                scene.stop()
    assert not [line for line in agent.lines() if line["level"] in {"error", "critical"}], json.dumps(agent.lines())


def runs(scene: Scene) -> int:
    """How often the link has come to run."""
    return scene.agent.history(*scene.good_link).count("running")


def wait_runs_again(scene: Scene, ran: int) -> None:
    eventually(lambda: runs(scene) > ran, what="the link runs")


def endure(scene: Scene, proxy: Proxy) -> None:
    """The link is cut and runs again, messages flow, and a probe is answered."""
    ran = runs(scene)
    proxy.cut()
    wait_runs_again(scene, ran)
    answers: list[float] = []
    ends = time.monotonic() + DEADLINE / 2
    while len(answers) < 5 or (min(answers) >= ANSWERED_WITHIN and time.monotonic() < ends):
        scene.flow()
        answers.append(scene.answered_after())
        assert len(list(Path(f"/proc/{scene.agent.pid}/fd").iterdir())) < DESCRIPTORS / 2
    assert min(answers) < ANSWERED_WITHIN, answers
