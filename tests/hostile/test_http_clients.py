"""Whatever hundreds of HTTP clients do, links flow and reconnect, probes are answered, SIGTERM is obeyed."""

from __future__ import annotations

import json
import time
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

DESCRIPTORS: Final = 256
FLOODED: Final = 300  # connections before the links are cut, more than there are descriptors


def test_hostile_clients_of_all_kinds_take_nothing_from_links(scene: Scene, lab: Lab) -> None:
    endure(scene, lab, *CLIENTS.values())


@pytest.mark.thorough
@pytest.mark.parametrize("speak", CLIENTS.values(), ids=CLIENTS)
def test_hostile_clients_of_one_kind_take_nothing_from_links(scene: Scene, lab: Lab, speak: Speak) -> None:
    endure(scene, lab, speak)


def endure(scene: Scene, lab: Lab, *kinds: Speak) -> None:
    agent, link = scene.agent, scene.good_link
    scene.there.exchange()
    scene.here.exchange().queue("#", name=GOOD)
    with Proxy(scene.there.node.amqp_port, mark=lab.mark) as proxy:
        uri = scene.there.uri.replace(f":{scene.there.node.amqp_port}", f":{proxy.port}")
        upstreams = {"origin": {"uri": uri, "reconnect-delay": 1}}
        agent.write({scene.here.vhost: {"upstreams": upstreams, "policies": policies()}}).start(
            "tests.hostile.few_descriptors"
        )
        agent.wait_for("running", link)
        before = memory_mib(agent.pid)
        with HostileClients(agent.port, *kinds) as clients:
            eventually(lambda: clients.connected > FLOODED, what="clients are connected")
            runs = agent.history(*link).count("running")
            proxy.cut()
            eventually(lambda: agent.history(*link).count("running") > runs, what="the link is there again")
            answers: list[float] = []
            ends = time.monotonic() + DEADLINE / 2
            while len(answers) < 5 or (min(answers) >= ANSWERED_WITHIN and time.monotonic() < ends):
                scene.flow()
                answers.append(scene.answered_after())
                assert len(list(Path(f"/proc/{agent.pid}/fd").iterdir())) < DESCRIPTORS / 2
                time.sleep(0.2)
            assert min(answers) < ANSWERED_WITHIN, answers
            assert memory_mib(agent.pid, peak=True) - before < MEMORY
            scene.stop()
    assert not [line for line in agent.lines() if line["level"] in {"error", "critical"}], json.dumps(agent.lines())
