"""The rules in a real Prometheus: what moved messages and stops makes one alert for its cause, whatever the number of
links, vhosts and replicas.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Borrowed
from tests.deploy.prometheus import Prometheus
from tests.integration.check.pair import memory_alarm
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import federated
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

EXCHANGES = ("fed.x", "fed.y", "fed.z")
FLOWED = "upstream:federation_agent_last_confirm_timestamp_seconds:last"
PENDING = 'ALERTS{alertname=~"FederationLink.*|.*NotFlowing",alertstate="pending"}'


@pytest.mark.parametrize("histograms", [pytest.param("link", marks=pytest.mark.thorough), "upstream"])
def test_links_that_stop_make_one_alert(  # noqa: PLR0917
    lab: Lab,
    tmp_path: Path,
    agent_of: AgentOf,
    broker: Node,
    second_broker: Node,
    site_on: SiteOn,
    proxy_to: Callable[[Node], Proxy],
    histograms: str,
) -> None:
    """Also with metrics that leave out most of the states that a link isn't in, and where two agents share them."""
    here, there, proxy = site_on(broker), site_on(second_broker), proxy_to(second_broker)
    for name in EXCHANGES:
        here.exchange(name).queue("k", exchange=name, name=name)
    definition = federated(there, **{"reconnect-delay": 1})
    definition["upstreams"]["origin"]["uri"] = second_broker.uri(there.vhost, port=proxy.port)
    agents = [agent_of(broker), agent_of(broker)]
    for agent in agents:
        settings = agent.settings()
        settings["http"] |= {"metrics": {"transfer-histogram": histograms}}
        agent.write({here.vhost: definition}, agent=settings).start()
    (tmp_path / "token").write_text("unasked")
    prometheus = Prometheus.start(lab, tmp_path, [f"127.0.0.1:{each.port}" for each in agents], tmp_path / "token")
    try:
        for name in EXCHANGES:
            there.wait_bound("k", exchange=name)
            there.publish(["m"], exchange=name)
            assert here.take(1, queue=name) == ["m"]
        eventually(lambda: prometheus.query(FLOWED), ignoring=OSError)
        assert not prometheus.query('ALERTS{alertname=~".*NotFlowing"}')
        proxy.refuse()
        proxy.cut()
        alert = only_pending(prometheus, "FederationUpstreamNotFlowing")
        assert alert["metric"]["upstream"] == "origin"
        assert alert["metric"]["trouble"] == "unreachable"
        assert alert["metric"]["group"]

        def are_counted_once() -> bool:  # a link that is handed over may be seen with both agents for a scrape
            found = prometheus.query("upstream:federation_agent_links_stuck:count")
            return [each["value"][1] for each in found] == [str(len(EXCHANGES))]

        eventually(are_counted_once)
    finally:
        prometheus.stop()


@pytest.mark.thorough
def test_an_alarm_of_the_downstream_is_one_alert_also_where_an_idle_link_runs(  # noqa: PLR0917
    lab: Lab, tmp_path: Path, agent_of: AgentOf, borrowed: Borrowed, second_broker: Node, site_on: SiteOn
) -> None:
    """A broker with an alarm blocks only connections that publish."""
    broker = borrowed()
    busy = [(site_on(broker), site_on(second_broker)) for _ in range(3)]
    idle = site_on(broker), site_on(second_broker)
    for here, there in (*busy, idle):
        here.exchange().queue("k")
        there.exchange()
    agent = agent_of(broker).write({here.vhost: federated(there) for here, there in (*busy, idle)}).start()
    (tmp_path / "token").write_text("unasked")
    prometheus = Prometheus.start(lab, tmp_path, [f"127.0.0.1:{agent.port}"], tmp_path / "token")
    try:
        for here, there in busy:
            there.wait_bound("k")
            there.publish(["m"])
            assert here.take(1) == ["m"]
        idle[1].wait_bound("k")
        eventually(lambda: len(prometheus.query(FLOWED)) == len(busy), ignoring=OSError)
        with memory_alarm(broker):
            for _, there in busy:
                there.publish(["m"])
            stopped = "sum(downstream:federation_agent_links_stuck:count) == 3"
            eventually(lambda: prometheus.query(stopped), what="all links that publish are blocked")
            running = prometheus.query('federation_agent_link_state{state="running"} == 1')
            assert [each["metric"]["vhost"] for each in running] == [idle[0].vhost]
            alert = only_pending(prometheus, "FederationDownstreamNotFlowing")
            assert "upstream" not in alert["metric"]
            assert alert["metric"]["trouble"] == "memory alarm"
        eventually(lambda: not prometheus.query('ALERTS{alertname=~".*NotFlowing"}'), what="it is over")
    finally:
        prometheus.stop()


def only_pending(prometheus: Prometheus, name: str) -> dict[str, Any]:
    """The five minutes until it fires are too long here."""

    def only() -> list[dict[str, Any]]:
        found = prometheus.query(PENDING)
        return found if [each["metric"]["alertname"] for each in found] == [name] else []

    [alert] = eventually(only, what=f"only {name} is pending")
    return alert
