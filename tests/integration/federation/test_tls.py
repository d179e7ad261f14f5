"""A private authority on every side, as docs/tls.md shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import TlsBroker
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import policies
from tests.lab.waiting import eventually


@pytest.fixture
def sections(tls_broker: TlsBroker) -> Callable[..., dict[str, Any]]:
    """What a configuration says of both sides, with this file as the authorities."""

    def written(upstream_vhost: str, cacertfile: str) -> dict[str, Any]:
        trust = {"cacertfile": cacertfile}
        origin = {
            "host": "localhost",
            "port": tls_broker.amqps_port,
            "protocol": "amqps",
            "virtual-host": upstream_vhost,
            "ssl-options": trust,
        }
        downstream = {
            "uri": f"amqps://localhost:{tls_broker.amqps_port}",
            "management": f"https://localhost:{tls_broker.https_port}",
            "ssl-options": trust,
        }
        return {"downstream": downstream, "origin": origin}

    return written


def test_both_brokers_and_the_http_api(
    agent_of: AgentOf, tls_broker: TlsBroker, site_on: SiteOn, sections: Callable[..., dict[str, Any]]
) -> None:
    here, there = site_on(tls_broker.node), site_on(tls_broker.node)
    here.exchange().queue("#")
    there.exchange()
    found = sections(there.vhost, str(tls_broker.authority.cacertfile))
    agent = agent_of(tls_broker.node)
    vhosts = {here.vhost: {"upstreams": {"origin": found["origin"]}, "policies": policies()}}
    agent.write(vhosts, downstream=found["downstream"])
    agent.start().wait_for("running", (here.vhost, "fed.x", "origin"))
    there.wait_bound("#")
    there.publish(["m"])
    assert here.take(1) == ["m"]


def test_an_authority_that_isnt_theirs(
    agent_of: AgentOf, tls_broker: TlsBroker, expired_tls_broker: TlsBroker, sections: Callable[..., dict[str, Any]]
) -> None:
    """The same names, another authority."""
    found = sections("/", str(expired_tls_broker.authority.cacertfile))
    agent = agent_of(tls_broker.node)
    agent.write({}, downstream=found["downstream"])
    agent.start()
    eventually(lambda: "its certificate is not trusted" in agent.log.read_text(), what="the log says what is wrong")


def test_a_certificate_of_the_agents_own_on_every_side(
    agent_of: AgentOf, strict_tls_broker: TlsBroker, site_on: SiteOn
) -> None:
    """Mutual TLS, towards a broker and an HTTP API that let nobody in without a certificate."""
    broker = strict_tls_broker
    here, there = site_on(broker.node), site_on(broker.node)
    here.exchange().queue("#")
    there.exchange()
    client = broker.authority.client("agent")
    shown = {
        "cacertfile": str(broker.authority.cacertfile),
        "certfile": str(client.certfile),
        "keyfile": str(client.keyfile),
    }
    query = "&".join(f"{key}={value}" for key, value in shown.items())
    origin = {"uri": f"amqps://localhost:{broker.amqps_port}/{there.vhost}?{query}"}
    downstream = {
        "uri": f"amqps://localhost:{broker.amqps_port}",
        "management": f"https://localhost:{broker.https_port}",
        "ssl-options": shown,
    }
    agent = agent_of(broker.node)
    agent.write({here.vhost: {"upstreams": {"origin": origin}, "policies": policies()}}, downstream=downstream)
    agent.start().wait_for("running", (here.vhost, "fed.x", "origin"))
    there.wait_bound("#")
    there.publish(["m"])
    assert here.take(1) == ["m"]
