"""Many links: few sockets, little memory, and next to no work while nobody consumes.

FEDERATION_AGENT_LINKS sets how many queue links there are; of shovels there is a fifth.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bench.process import memory_mib
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import User, federated, queue
from tests.integration.shovels.shoveling import shovel
from tests.lab.node import Node
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

COUNT: Final = int(os.environ.get("FEDERATION_AGENT_LINKS", "300"))
SHOVELS: Final = COUNT // 5
SOCKETS: Final = 20  # to each broker
MEMORY: Final = 200.0  # MiB
IDLE: Final = 10.0
DEADLINE: Final = 120.0 + COUNT / 10

pytestmark = pytest.mark.timeout(400 + 2 * DEADLINE)


def cpu_seconds(pid: int) -> float:
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_in(pid: int, seconds: float) -> float:
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return cpu_seconds(pid) - before


def sockets(pid: int) -> int:
    descriptors = (Path("/proc") / str(pid) / "fd").iterdir()
    return sum(each.is_symlink() and str(each.readlink()).startswith("socket:") for each in descriptors)


def connections(*nodes: Node) -> Counter[str]:
    """How many the agents have to each vhost, but for those that only read."""
    found = [each for node in nodes for each in node.admin.get("connections")]
    return Counter(str(each["vhost"]) for each in found if each.get("vhost"))


def declare_all(site: Site, names: list[str]) -> None:
    definitions = [{"name": name, "durable": True, "auto_delete": False, "arguments": {}} for name in names]
    site.node.admin.post("definitions", site.vhost, body={"queues": definitions})


def to_each(here: Site, theres: list[Site], shovels: int) -> dict[str, Any]:
    """Queues `work0…`, `work1…`, … are federated with one broker each; shovels go there, too."""
    upstreams = {f"origin{number}": {"uri": there.uri} for number, there in enumerate(theres)}
    policies = {
        name: {"pattern": f"^work{number}", "apply-to": "queues", "definition": {"federation-upstream": name}}
        for number, name in enumerate(upstreams)
    }
    defined = {
        f"s{number}": shovel(here, theres[number % len(theres)], src_queue=f"src{number}", dest_queue=f"dest{number}")
        for number in range(shovels)
    }
    return {"upstreams": upstreams, "policies": policies, "shovels": defined}


@pytest.mark.thorough
def test_many_links(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare_all(here, [f"work{number}" for number in range(COUNT)])
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_running(COUNT, deadline=DEADLINE)
    assert sockets(agent.pid) <= SOCKETS
    time.sleep(3)
    # CPU seconds are longer where others have the caches, and on virtual machines that were asleep.
    used = min(cpu_in(agent.pid, IDLE / 2) for _ in range(2))
    assert used / (IDLE / 2) < 0.3
    there.publish(bodies := numbered(20), "work7", exchange="")
    with User(here, "work7") as user:
        assert user.wait(20) == bodies
    assert agent.links()[queue(here, "work8")]["status"] == "running"


@pytest.mark.thorough
def test_links_and_shovels_to_three_brokers(
    agent_of: AgentOf, site_on: SiteOn, here: Site, second_broker: Node
) -> None:
    theres = [site_on(second_broker) for _ in range(3)]
    declare_all(here, [f"work{number % 3}.{number}" for number in range(COUNT)])
    agent = agent_of(here.node).write({here.vhost: to_each(here, theres, SHOVELS)}).start()
    agent.wait_running(COUNT + SHOVELS, deadline=DEADLINE)
    here.publish(numbered(5), "src1", exchange="")
    assert theres[1].take(5, queue="dest1") == numbered(5)
    vhosts = [here.vhost, *(there.vhost for there in theres)]

    def listed() -> bool:
        return connections(here.node, second_broker).keys() >= {*vhosts}

    eventually(listed, what="the brokers list connections")
    found = connections(here.node, second_broker)
    assert all(found[vhost] <= SOCKETS for vhost in vhosts), found
    assert memory_mib(agent.pid) <= MEMORY
