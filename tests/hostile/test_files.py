"""An upstream's URI names any file: none of them keeps the agent from its work."""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.scene import Scene
from tests.integration.federation.sites import federated
from tests.lab.waiting import eventually

ENDPOINTS = 12  # more than asyncio has threads for what blocks


def test_a_pipe_as_a_certificate_is_refused_and_holds_up_nothing(scene: Scene, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    port = scene.there.node.amqp_port
    endpoint = f"amqps://127.0.0.1:{port}/%2F?connection_timeout=200&cacertfile={tmp_path}/pipe"
    scene.start(endpoint, neighbour={"uri": [f"{endpoint}&depth={number}" for number in range(ENDPOINTS)]})
    scene.endure(0.5)
    eventually(lambda: scene.hostile_status()["status"] == "invalid", what="it is refused")
    found = scene.hostile_status()
    assert f"cacertfile {tmp_path}/pipe can't be used: this is a pipe or device, not a file" in found["error"]
    scene.agent.write({scene.here.vhost: federated(scene.there)})
    eventually(lambda: not scene.hostile_status(), what="the change is taken up")
    scene.flow()
    scene.stop()
