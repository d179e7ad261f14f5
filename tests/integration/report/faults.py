"""Faults at known times: the tables tell them within nine seconds of the truth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as fn

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, federated
from tests.integration.status.asking import get
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

NEAR: Final = 9.0
"""Seconds: whoever notices may get no CPU for some."""
A_WHILE: Final = 10.0
"""Longer than three sample intervals, so that a dead agent is known to be dead; and than `NEAR`, so that the times of
one fault aren't those of the next."""


@dataclass
class Course:
    """What was done, and when it was so."""

    cut: tuple[float, float] = (0, 0)
    paused: tuple[float, float] = (0, 0)
    dead: tuple[float, float] = (0, 0)
    stopped: tuple[float, float] = (0, 0)
    lived: tuple[float, float] = (0, 0)
    links: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Faults:
    agent: Agent
    network: Proxy
    upstream: Node
    by_proxy: Site
    direct: Site

    def wait(self, status: str, *sites: Site) -> float:
        """Until their links are so; answers when that was seen, by the agent's own word."""

        def reached() -> bool:
            found = {link["vhost"]: link["status"] for link in get(self.agent, "/api/links")}
            return all(found.get(site.vhost) == status for site in sites)

        eventually(reached, what=f"links are {status}", ignoring=OSError)
        return time.time()


@pytest.fixture
def faulty(
    agent_of: AgentOf, broker: Node, site_on: SiteOn, borrowed: Borrowed, proxy_to: Callable[[Node], Proxy]
) -> Faults:
    """Two links of one agent to one broker, of which one passes a network that can be cut."""
    upstream = borrowed()
    network = proxy_to(upstream)
    by_proxy, direct, there = site_on(broker), site_on(broker), Site(upstream, "/")
    vhosts = {}
    for site, port in ((by_proxy, network.port), (direct, upstream.amqp_port)):
        site.exchange().queue("k")
        definition = federated(there, **{"reconnect-delay": 1})
        definition["upstreams"]["origin"]["uri"] = upstream.uri(port=port)
        vhosts[site.vhost] = definition
    agent = agent_of(broker)
    about = {
        "name": "dc2-a",
        "group": "faults",
        "http": {"listen": f"127.0.0.1:{agent.port}"},
        "status-export": {"directory": "status", "sample-interval": 2, "rotate": 1},
    }
    agent.write(vhosts, agent=about).start()
    return Faults(agent, network, upstream, by_proxy, direct)


def live(scene: Faults) -> Course:
    """One fault after another, with a while between them."""
    course, both = Course(), (scene.by_proxy, scene.direct)
    running = scene.wait("running", *both)
    course.links = {link["vhost"]: link["id"] for link in get(scene.agent, "/api/links")}
    time.sleep(1)

    begun = time.time()
    scene.network.refuse()
    scene.network.cut()
    time.sleep(A_WHILE)
    scene.network.accept()
    course.cut = begun, scene.wait("running", scene.by_proxy)

    begun = time.time()
    link = course.links[scene.direct.vhost]
    get(scene.agent, f"/api/links/{link}/pause", "POST")
    time.sleep(A_WHILE)
    get(scene.agent, f"/api/links/{link}/resume", "POST")
    course.paused = begun, scene.wait("running", scene.direct)
    time.sleep(1)

    begun = time.time()
    scene.agent.kill()
    time.sleep(A_WHILE)
    scene.agent.start()
    course.dead = begun, scene.wait("running", *both)
    time.sleep(1)

    begun = time.time()
    scene.upstream.stop()
    scene.upstream.start()
    course.stopped = begun, scene.wait("running", *both)
    time.sleep(1)
    course.lived = running, time.time()
    assert scene.agent.terminate() == 0
    return course


def spans(rows: list[Row]) -> list[tuple[float, float]]:
    return [(row["begin"] / 1e6, row["until"] / 1e6) for row in rows]


def near(found: list[tuple[float, float]], truth: list[tuple[float, float]]) -> bool:
    moments = zip(chain.from_iterable(found), chain.from_iterable(truth), strict=False)
    return len(found) == len(truth) and all(abs(one - other) <= NEAR for one, other in moments)


def check(scene: Faults, course: Course, table: Callable[[str], DataFrame]) -> None:
    by_proxy, direct = (course.links[site.vhost] for site in (scene.by_proxy, scene.direct))

    def rows_of(name: str, link: str, condition: str = "true") -> list[tuple[float, float]]:
        rows = table(name).where(fn.col("link") == link).where(condition)
        moments = rows.select(fn.unix_micros("start").alias("begin"), fn.unix_micros("end").alias("until"))
        return spans(moments.orderBy("begin").collect())

    # Before its first word a link is unknown, and so it is after its agent's last.
    begun, ended = course.lived
    unknown, paused = "bucket = 'unknown' and seconds > 5", "bucket = 'paused'"
    for link in (by_proxy, direct):
        dead = [span for span in rows_of("intervals", link, unknown) if begun < span[1] and span[0] < ended]
        if scene.agent.logged("the agent stood still"):  # a busy machine makes it unknown once more
            dead = [span for span in dead if near([span], [course.dead])][:1]
        assert near(dead, [course.dead]), (dead, course)
    assert near(rows_of("intervals", direct, paused), [course.paused]), (rows_of("intervals", direct, paused), course)
    assert rows_of("intervals", by_proxy, paused) == []
    assert near(rows_of("incidents", by_proxy), [course.cut, course.stopped]), (
        rows_of("incidents", by_proxy),
        course,
    )
    assert near(rows_of("incidents", direct), [course.stopped]), (rows_of("incidents", direct), course)
