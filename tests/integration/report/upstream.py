"""What entered a link's queue upstream and what became of it there, to the message, by the broker's own counters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.integration.federation.test_failures import link
from tests.integration.status.asking import get, link_when
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import DEADLINE, NeverHappenedError, eventually

GROUP: Final = "upstream"
HURRIED: Final = "tests.integration.report.hurried"
SETTLES: Final = 2 * DEADLINE
FLOWED: Final = 300
PURGED: Final = 30
AFTERWARDS: Final = 40
COLUMNS: Final = (
    *("entered", "acknowledged", "expired", "uncounted", "repeated", "unexplained_upstream"),
    *("forwarded", "unexplained"),
)


@dataclass(frozen=True)
class AtUpstream:
    agent: Agent
    here: Site
    there: Site

    def wait_until(self, what: str, **numbers: int) -> dict[str, Any]:
        """Until a line has these."""

        def found() -> dict[str, Any] | None:
            last = self.last()
            return last if all(last[name] == number for name, number in numbers.items()) else None

        try:
            answer = eventually(found, SETTLES, what=f"{what}: {numbers}")
        except NeverHappenedError as error:
            raise AssertionError(f"{error}; {self.last()}") from error
        assert answer
        return answer

    def wait_compared(self) -> None:
        """Until what happened so far is compared: twice, as the first look may have come before."""
        before = self.last()["looks"] or 0
        eventually(lambda: (self.last()["looks"] or 0) >= before + 2, SETTLES, what="the queue is looked at")

    def last(self) -> dict[str, Any]:
        found = [
            json.loads(line)
            for path in (self.agent.directory / "status").rglob("*.jsonl")
            for line in path.read_bytes().splitlines()
        ]
        of_link = sorted((one for one in found if one["type"] != "agent"), key=lambda one: str(one["ts"]))
        return of_link[-1] if of_link else {"looks": 0}


@pytest.fixture
def origin(borrowed: Borrowed, request: pytest.FixtureRequest) -> Node:
    """An upstream that is restarted."""
    return borrowed(release=getattr(request, "param", None))


@pytest.fixture
def network(origin: Node, proxy_to: Callable[[Node], Proxy]) -> Proxy:
    return proxy_to(origin)


@pytest.fixture
def at_upstream(agent_of: AgentOf, broker: Node, origin: Node, site_on: SiteOn, network: Proxy) -> AtUpstream:
    here, there = site_on(broker), site_on(origin)
    here.exchange().queue("k")
    there.exchange()
    definition = federated(there, **{"reconnect-delay": 1})
    definition["upstreams"]["origin"]["uri"] = origin.uri(there.vhost, port=network.port)
    # The login is that of the URI.
    definition["upstreams"]["origin"]["management"] = f"http://127.0.0.1:{origin.management_port}"
    agent = agent_of(broker)
    export = {"directory": "status", "sample-interval": 1, "rotate": 1}
    agent.write(
        {here.vhost: definition}, agent=agent.settings(**{"name": "dc2-a", "group": GROUP, "status-export": export})
    )
    agent.start(HURRIED).wait_for("running", link(here))
    return AtUpstream(agent, here, there)


def live(scene: AtUpstream, origin: Node) -> None:
    """Messages flow; then some wait, and somebody purges the queue; then the broker restarts and forgets its counts."""
    scene.wait_compared()
    scene.there.publish(numbered(FLOWED))
    scene.wait_until("they flowed", entered=FLOWED, acknowledged=FLOWED, settled=FLOWED, waiting=0)

    [found] = get(scene.agent, "/api/links")
    get(scene.agent, f"/api/links/{found['id']}/pause", "POST")
    scene.there.wait_unconsumed()
    scene.there.publish(numbered(PURGED))
    scene.wait_until("they wait", entered=FLOWED + PURGED, growth=PURGED, waiting=PURGED)
    [queue] = origin.admin.get("queues", scene.there.vhost)
    origin.admin.delete("queues", scene.there.vhost, queue["name"], "contents")
    scene.wait_until("they are purged", growth=0, waiting=0)
    get(scene.agent, f"/api/links/{found['id']}/resume", "POST")
    link_when(scene.agent, "that runs", lambda each: bool(each["status"] == "running"))

    origin.restart()
    link_when(scene.agent, "that runs again", lambda each: bool(each["status"] == "running"))
    scene.there.publish(numbered(1))
    scene.wait_until("it flowed", forwarded=FLOWED + 1)
    scene.wait_compared()
    before = scene.last()["entered"]
    scene.there.publish(numbered(AFTERWARDS))
    scene.wait_until("they flowed, too", entered=before + AFTERWARDS, waiting=0)
    assert scene.agent.terminate() == 0


def account(table: Callable[[str], DataFrame]) -> dict[str, int]:
    """All days together."""
    days = table("account").where(fn.col("group") == GROUP).where(fn.col("period") == "day")
    row: dict[str, int] = days.agg(*(fn.sum(name).alias(name) for name in COLUMNS)).collect()[0].asDict()
    return row


def check(table: Callable[[str], DataFrame], summary: dict[str, Any]) -> None:
    row = account(table)
    # The one that followed the restart came before the broker's new counters could be compared, or after.
    late = row["entered"] - FLOWED - PURGED - AFTERWARDS
    assert late in (0, 1)
    assert row == {
        "entered": FLOWED + PURGED + AFTERWARDS + late,
        "acknowledged": FLOWED + AFTERWARDS + late,
        "expired": PURGED,
        "uncounted": 0,
        "repeated": 0,
        "unexplained_upstream": 0,
        "forwarded": FLOWED + 1 + AFTERWARDS,
        "unexplained": 0,
    }
    assert (summary["account"]["upstream_links"], summary["account"]["unexplained_upstream"]) == (1, 0)


def check_last(line: dict[str, Any]) -> None:
    """All that is accounted for by the last line, whose counters begin with the agent."""
    late = line["entered"] - FLOWED - PURGED - AFTERWARDS
    assert late in (0, 1)
    assert (line["acknowledged"], line["settled"]) == (FLOWED + AFTERWARDS + late,) * 2
    assert line["entered"] - line["acknowledged"] - line["growth"] == PURGED
    assert (line["settled_again"], line["growth"], line["waiting"]) == (0, 0, 0)
    assert (line["forwarded"], line["unsettled"]) == (FLOWED + 1 + AFTERWARDS, 0)
