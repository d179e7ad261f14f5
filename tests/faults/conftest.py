"""The sites and the agent of the federation tests, which faults break here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.faults import Series
from tests.faults.judging import COUNT, LASTS, RELEASE
from tests.faults.scene import ALL, EXCHANGE, Q_OF_USER, Ends, Scene, Tls
from tests.faults.traffic import Traffic
from tests.integration.federation.conftest import AgentOf, SiteOn, agent_of, site_on
from tests.lab.certificates import Authority, tls_conf
from tests.lab.lab import Lab

__all__ = ["agent_of", "site_on"]

collect_ignore = [] if ALL else ["test_cluster.py"]  # three nodes more


@pytest.fixture(scope="session")
def ends(lab: Lab) -> Iterator[Ends]:
    """Two brokers that only these tests break."""
    up, down = lab.node("faulty-up", release=RELEASE), lab.node("faulty-down", release=RELEASE)
    up.directory.mkdir(parents=True)
    authority, port = Authority.create(up.directory), lab.ports.take()
    shown = authority.server()
    outside, inside = str(up.directory), up.release.inside(up.directory)
    up.conf += [f"listeners.ssl.1 = 127.0.0.1:{port}"]
    up.conf += [line.replace(outside, inside) for line in tls_conf(authority, shown)]
    for node in (up, down):
        node.launch()
    for node in (up, down):
        node.wait_until_ready()
    yield Ends((up,), down, Tls(authority, shown, port))
    for node in (up, down):
        if node.alive:
            node.kill()


@pytest.fixture
def scene(lab: Lab, ends: Ends, site_on: SiteOn, agent_of: AgentOf, series: Series) -> Iterator[Scene]:
    """Both ends behind proxies, of a cluster the first node; users are at its last."""
    up, down = site_on(ends.up[-1]), site_on(ends.down)
    targets = (ends.up[0], down.node, down.node.management_port)
    with ExitStack() as begun:
        to_up, to_down, to_management = (begun.enter_context(lab.proxy(each)) for each in targets)
        agent = agent_of(
            down.node,
            uri=down.node.uri(port=to_down.port),
            management_uri=down.node.management_uri(port=to_management.port),
        )
        traffic = Traffic(up.uri, EXCHANGE, down.uri, Q_OF_USER, count=COUNT, seconds=LASTS)
        found = Scene(lab, ends, up, down, to_up, to_down, to_management, agent, traffic)
        begun.callback(found.end)
        yield found.begin(series.setting)
