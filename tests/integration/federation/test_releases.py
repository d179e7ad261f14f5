"""Downstream and upstream of either release, upstreams without any plugin and with the native one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import HURRIED
from tests.integration.federation.sites import Site, federated, policies
from tests.integration.federation.test_api import wait_noticing
from tests.integration.federation.test_failures import link
from tests.integration.federation.test_types import TYPE_PLUGINS, check
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

BrokerOn = Callable[..., Node]
SID = "sid"
TRIXIE = "trixie"
PLUGIN: Final = "plugin"
EACH: Final = 100


def internal_types(site: Site) -> list[str]:
    found = site.node.admin.get("exchanges", site.vhost)
    return [each["type"] for each in found if each["name"].startswith("federation: ")]


@dataclass(frozen=True, slots=True)
class Upstreams:
    """By their names; where `plugin` is part of one, it has the plugin."""

    sites: Mapping[str, Site]

    def defined(self, hops: int) -> dict[str, Any]:
        found = {name: {"uri": site.uri, "max-hops": hops} for name, site in self.sites.items()}
        return {"upstreams": found, "policies": policies()}

    def check_types(self) -> None:
        for name, site in self.sites.items():
            assert internal_types(site) == ["x-federation-upstream" if PLUGIN in name else "fanout"], name

    def wait_bound(self, *keys: str) -> None:
        for site in self.sites.values():
            site.wait_bound(*keys)

    def publish(self, key: str) -> None:
        for name, site in self.sites.items():
            site.publish((f"{name} {body}" for body in numbered(EACH)), key)

    def check_all_came(self, here: Site) -> None:
        came = here.take(EACH * len(self.sites))
        for name in self.sites:
            assert [each for each in came if each.startswith(f"{name} ")] == [
                f"{name} {each}" for each in numbered(EACH)
            ]

    def delete_exchanges(self, *, again: bool) -> None:
        for site in self.sites.values():
            site.delete_exchange()
            if again:
                site.exchange()


def use(agent_of: AgentOf, here: Site, sites: Mapping[str, Site]) -> None:
    """Flow, followed bindings, a changed definition, a stop and a start, and the end, with all upstreams at once."""
    there, links = Upstreams(sites), [link(here, name) for name in sites]
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: there.defined(1)}).start()
    agent.wait_for("running", *links)
    there.check_types()
    there.publish("k")
    there.check_all_came(here)
    here.bind("l")
    there.wait_bound("k", "l")
    here.unbind("k")
    there.wait_bound("l")
    agent.write({here.vhost: there.defined(2)}).reload()
    eventually(lambda: all(agent.history(*each).count("running") == 2 for each in links), what="the links run again")
    there.check_types()
    assert agent.terminate() == 0
    there.publish("l")
    agent.start(HURRIED)  # `test_canaries` waits as long as a user does
    there.check_all_came(here)
    wait_noticing(agent)
    there.delete_exchanges(again=False)
    there.wait_bound("l")
    there.delete_exchanges(again=True)
    there.wait_bound("l")
    agent.write({}).reload()
    for site in sites.values():
        site.wait_clean()


def test_upstreams_with_and_without_the_plugin(
    agent_of: AgentOf, here: Site, there: Site, site_on: SiteOn, native_broker: Node
) -> None:
    use(agent_of, here, {"bare": there, PLUGIN: site_on(native_broker)})


@pytest.mark.versions
def test_upstreams_of_newer_releases(agent_of: AgentOf, here: Site, site_on: SiteOn, broker_on: BrokerOn) -> None:
    there = {f"{PLUGIN}-{each}": site_on(broker_on(each, plugins=NATIVE_PLUGINS)) for each in (SID, TRIXIE)}
    use(agent_of, here, there | {SID: site_on(broker_on(SID))})


@pytest.mark.versions
def test_a_downstream_of_the_newest_release(
    agent_of: AgentOf, site_on: SiteOn, broker_on: BrokerOn, there: Site
) -> None:
    others = {SID: broker_on(SID, name="second"), TRIXIE: broker_on(TRIXIE)}
    use(agent_of, site_on(broker_on(SID)), {"old": there} | {name: site_on(node) for name, node in others.items()})


@pytest.mark.versions
def test_a_downstream_between_the_oldest_and_the_newest(
    agent_of: AgentOf, site_on: SiteOn, broker_on: BrokerOn
) -> None:
    use(agent_of, site_on(broker_on(TRIXIE)), {SID: site_on(broker_on(SID))})


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
