"""Many queue links: few sockets, and next to no work while nobody consumes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import User, federated, queue
from tests.lab.user_program import numbered

COUNT = 300
IDLE = 10.0


def cpu_seconds(pid: int) -> float:
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sockets(pid: int) -> int:
    descriptors = (Path("/proc") / str(pid) / "fd").iterdir()
    return sum(each.is_symlink() and str(each.readlink()).startswith("socket:") for each in descriptors)


def test_many_links(agent_of: AgentOf, here: Site, there: Site) -> None:
    names = [f"work{number}" for number in range(COUNT)]
    definitions = [{"name": name, "durable": True, "auto_delete": False, "arguments": {}} for name in names]
    here.node.admin.post("definitions", here.vhost, body={"queues": definitions})
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_running(COUNT, deadline=60)
    assert sockets(agent.pid) <= 20
    time.sleep(3)
    before = cpu_seconds(agent.pid)
    time.sleep(IDLE)
    used = (cpu_seconds(agent.pid) - before) / IDLE
    assert used < 0.1
    there.publish(bodies := numbered(20), "work7", exchange="")
    with User(here, "work7") as user:
        assert user.wait(20) == bodies
    assert agent.links()[queue(here, "work8")]["status"] == "running"
