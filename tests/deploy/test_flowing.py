"""The rules in a real Prometheus: links that moved messages and stop make one alert, whatever their number."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.prometheus import Prometheus
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import federated
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

EXCHANGES = ("fed.x", "fed.y", "fed.z")


@pytest.mark.parametrize("histograms", ["link", "upstream"])
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
    """Also with metrics that leave out most of the states that a link isn't in."""
    here, there, proxy = site_on(broker), site_on(second_broker), proxy_to(second_broker)
    for name in EXCHANGES:
        here.exchange(name).queue("k", exchange=name, name=name)
    definition = federated(there, **{"reconnect-delay": 1})
    definition["upstreams"]["origin"]["uri"] = second_broker.uri(there.vhost, port=proxy.port)
    agent = agent_of(broker)
    settings = agent.settings()
    settings["http"] |= {"metrics": {"transfer-histogram": histograms}}
    agent.write({here.vhost: definition}, agent=settings).start()
    (tmp_path / "token").write_text("unasked")
    prometheus = Prometheus.start(lab, tmp_path, [f"127.0.0.1:{agent.port}"], tmp_path / "token")
    try:
        for name in EXCHANGES:
            there.wait_bound("k", exchange=name)
            there.publish(["m"], exchange=name)
            assert here.take(1, queue=name) == ["m"]
        flowed = "link:federation_agent_last_confirm_timestamp_seconds:last"
        eventually(lambda: len(prometheus.query(flowed)) == len(EXCHANGES), 30, ignoring=OSError)
        assert not prometheus.query('ALERTS{alertname=~".*NotFlowing"}')
        proxy.refuse()
        proxy.cut()
        pending = 'ALERTS{alertname=~"FederationLink.*|.*NotFlowing",alertstate="pending"}'
        [alert] = eventually(lambda: prometheus.query(pending), 30)  # five minutes until it fires are too long here
        assert alert["metric"]["alertname"] == "FederationUpstreamNotFlowing"
        assert alert["metric"]["upstream"] == "origin"
        assert prometheus.query("upstream:federation_agent_links_stuck:count")[0]["value"][1] == str(len(EXCHANGES))
    finally:
        prometheus.stop()
