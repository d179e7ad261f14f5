"""Downstream and upstream of either release, upstreams without any plugin and with the native one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import HURRIED
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_api import wait_noticing
from tests.integration.federation.test_failures import link
from tests.integration.federation.test_types import TYPE_PLUGINS, check
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

BrokerOn = Callable[..., Node]
SID = "sid"
TRIXIE = "trixie"


def internal_types(site: Site) -> list[str]:
    found = site.node.admin.get("exchanges", site.vhost)
    return [each["type"] for each in found if each["name"].startswith("federation: ")]


def use(agent_of: AgentOf, here: Site, there: Site, kind: str) -> None:
    """Flow, followed bindings, a changed definition, a stop and a start, and the end."""
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    assert internal_types(there) == [kind]
    there.publish(numbered(500))
    assert here.take(500) == numbered(500)
    here.bind("l")
    there.wait_bound("k", "l")
    here.unbind("k")
    there.wait_bound("l")
    agent.write({here.vhost: federated(there, **{"max-hops": 2})})
    eventually(lambda: agent.history(*link(here)).count("running") == 2, what="the link runs again")
    assert internal_types(there) == [kind]
    assert agent.terminate() == 0
    there.publish(numbered(500), "l")
    agent.start(HURRIED)  # `test_following` waits as long as a user does
    assert here.take(500) == numbered(500)
    wait_noticing(agent)
    there.delete_exchange()
    there.wait_bound("l")
    there.delete_exchange()
    there.exchange()
    there.wait_bound("l")
    agent.write({})
    there.wait_clean()


def test_an_upstream_without_plugin(agent_of: AgentOf, here: Site, there: Site) -> None:
    use(agent_of, here, there, "fanout")


def test_an_upstream_with_the_plugin(agent_of: AgentOf, here: Site, site_on: SiteOn, native_broker: Node) -> None:
    use(agent_of, here, site_on(native_broker), "x-federation-upstream")


@pytest.mark.versions
@pytest.mark.parametrize(("down", "up"), [(None, SID), (SID, None), (SID, SID), (TRIXIE, SID), (SID, TRIXIE)])
def test_releases_without_plugin(
    agent_of: AgentOf, site_on: SiteOn, broker_on: BrokerOn, down: str | None, up: str | None
) -> None:
    upstream = broker_on(up, name="second" if up == down else "broker")
    use(agent_of, site_on(broker_on(down)), site_on(upstream), "fanout")


@pytest.mark.versions
@pytest.mark.parametrize("release", [SID, TRIXIE])
def test_releases_with_the_plugin_upstream(
    agent_of: AgentOf, here: Site, site_on: SiteOn, broker_on: BrokerOn, release: str
) -> None:
    use(agent_of, here, site_on(broker_on(release, plugins=NATIVE_PLUGINS)), "x-federation-upstream")


@pytest.mark.versions
def test_every_type_on_4_x(agent_of: AgentOf, site_on: SiteOn, broker_on: BrokerOn) -> None:
    broker = broker_on(SID, plugins=TYPE_PLUGINS)
    check(agent_of, site_on(broker), site_on(broker))


@pytest.mark.thorough
def test_an_upstream_that_comes_back_without_the_plugin(agent_of: AgentOf, here: Site, borrowed: Borrowed) -> None:
    """What was found out about a broker doesn't hold for the one that answers next."""
    node = borrowed(plugins=NATIVE_PLUGINS)
    there = Site(node, "/")
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    assert internal_types(there) == ["x-federation-upstream"]
    node.stop()
    node.run("rabbitmq-plugins", "disable", "--offline", "rabbitmq_federation", "rabbitmq_federation_management")
    node.start()
    agent.wait_for("running", link(here))
    assert internal_types(there) == ["fanout"]
    there.publish(numbered(10))
    assert here.take(10) == numbered(10)


@pytest.mark.thorough
def test_an_upstream_whose_plugin_is_disabled_meanwhile(agent_of: AgentOf, here: Site, borrowed: Borrowed) -> None:
    """Until it is noticed nobody can publish to the exchange that the one of the plugin's type is bound to."""
    node = borrowed(plugins=NATIVE_PLUGINS)
    there = Site(node, "/")
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    node.run("rabbitmq-plugins", "disable", "rabbitmq_federation", "rabbitmq_federation_management")
    eventually(lambda: internal_types(there) == ["fanout"], what="the internal exchange is of another type")
    agent.wait_for("running", link(here))
    there.publish(numbered(10))
    assert here.take(10) == numbered(10)
    here.bind("l")
    there.wait_bound("k", "l")


@pytest.mark.parametrize("release", [None, pytest.param(SID, marks=pytest.mark.versions)])
def test_quorum_queues_upstream(
    agent_of: AgentOf, here: Site, site_on: SiteOn, broker_on: BrokerOn, release: str | None
) -> None:
    there = site_on(broker_on(release, name="broker" if release else "second"))
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"queue-type": "quorum"})}).start()
    agent.wait_for("running", link(here))
    [queue] = [each for each in there.node.admin.get("queues", there.vhost) if each["name"].startswith("federation: ")]
    assert queue["arguments"]["x-queue-type"] == "quorum"
    there.publish(numbered(100), exchange=X)
    assert here.take(100) == numbered(100)
