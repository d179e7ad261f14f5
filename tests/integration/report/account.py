"""What became of messages, to the message: dropped, put into quarantine, given back, forwarded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.integration.federation.test_failures import link
from tests.integration.quarantine.scene import LARGE, LIMIT
from tests.integration.quarantine.test_refused import FULL, two_queues
from tests.integration.status.asking import get, link_when
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

GROUP: Final = "account"
HELD: Final = 50
"""Messages for a queue that is full: they are in flight until the link ends."""
FLOWED: Final = 300
STOPPED: Final = 5
COUNTED: Final = ("taken", "forwarded", "dropped", "quarantined", "given_back", "unsettled")
VISITED: Final[dict[str, Any]] = {"x-received-from": [{"uri": "amqp://elsewhere", "exchange": "x"}]}


@dataclass(frozen=True)
class Accounted:
    agent: Agent
    network: Proxy
    here: Site
    there: Site

    def wait_running(self) -> None:
        link_when(self.agent, "that runs", lambda found: bool(found["status"] == "running"))

    def wait_held(self) -> None:
        """Until the export shows the messages for the full queue in flight."""
        what = f"a line with {HELD} unsettled after the last given back"
        eventually(lambda: self.last()["unsettled"] == HELD, what=what)

    def last(self) -> dict[str, Any]:
        return next(reversed(self.lines()), dict.fromkeys(COUNTED, 0))

    def lines(self) -> list[dict[str, Any]]:
        found = [
            json.loads(line)
            for path in (self.agent.directory / "status").rglob("*.jsonl")
            for line in path.read_bytes().splitlines()
        ]
        return sorted((one for one in found if one["type"] != "agent"), key=lambda one: str(one["ts"]))


@pytest.fixture
def narrow(lab: Lab) -> Node:
    return lab.shared("narrow", conf=[f"max_message_size = {LIMIT}"])


@pytest.fixture
def accounted(
    agent_of: AgentOf, broker: Node, narrow: Node, site_on: SiteOn, proxy_to: Callable[[Node], Proxy]
) -> Accounted:
    here, there, network = site_on(narrow), site_on(broker), proxy_to(broker)
    two_queues(here, there)
    definition = federated(there, **{"reconnect-delay": 1})
    definition["upstreams"]["origin"]["uri"] = broker.uri(there.vhost, port=network.port)
    agent = agent_of(narrow)
    about = {
        "name": "dc2-a",
        "group": GROUP,
        "http": {"listen": f"127.0.0.1:{agent.port}"},
        "status-export": {"directory": "status", "sample-interval": 0.5, "rotate": 1},
    }
    agent.write({here.vhost: definition}, agent=about).start().wait_for("running", link(here))
    return Accounted(agent, network, here, there)


def live(scene: Accounted) -> None:
    """What is for the full queue is given back by a pause, by a cut, and by a kill, which no line shows."""
    scene.there.publish(numbered(FLOWED), "ok.a")
    scene.here.wait_depth(FLOWED, "q")
    scene.there.publish(numbered(STOPPED), "ok.a", headers=VISITED)
    eventually(lambda: scene.last()["dropped"] == STOPPED, what="they are dropped")
    scene.there.publish([LARGE], "ok.a")
    eventually(lambda: scene.last()["quarantined"] == 1, what="one is in quarantine")

    scene.there.publish(numbered(HELD), "full.a")
    scene.wait_held()
    [found] = get(scene.agent, "/api/links")
    get(scene.agent, f"/api/links/{found['id']}/pause", "POST")
    eventually(lambda: scene.last()["unsettled"] == 0, what="all are given back")
    get(scene.agent, f"/api/links/{found['id']}/resume", "POST")
    scene.wait_held()

    scene.network.cut()
    eventually(lambda: scene.last()["given_back"] >= 2 * HELD, what="all are given back again")
    scene.wait_held()

    scene.agent.kill()
    scene.agent.start()
    eventually(lambda: scene.last()["taken"] == HELD, what="all are taken by another process")
    scene.here.node.admin.delete("policies", scene.here.vhost, f"limit {FULL}")
    scene.here.wait_depth(1 + HELD, FULL)
    assert scene.agent.terminate() == 0


def check(scene: Accounted, table: Callable[[str], DataFrame]) -> None:
    for line in scene.lines():
        explained = sum(line[name] for name in COUNTED[1:])
        assert line["taken"] == explained, {name: line[name] for name in COUNTED}

    days = table("account").where(fn.col("group") == GROUP).where(fn.col("period") == "day")
    ends = [fn.min_by("in_flight_start", "start"), fn.max_by("in_flight_end", "start")]
    row = days.agg(*(fn.sum(name).alias(name) for name in (*COUNTED[:-1], "unexplained")), *ends).collect()[0]
    assert (row["forwarded"], row["dropped"], row["quarantined"]) == (FLOWED + HELD, STOPPED, 1)
    # The large one comes twice: the connection was closed over it first.
    assert row["given_back"] == 3 * HELD + 1
    assert row["taken"] == FLOWED + STOPPED + 2 + 4 * HELD
    assert (row["unexplained"], row[6], row[7]) == (0, 0, 0)
