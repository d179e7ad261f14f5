"""Broker events are listened to in vhost `/`, over one connection, whatever the downstream's URI says."""

from collections.abc import Callable

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import BY_EVENTS
from tests.integration.federation.sites import Site, X, federated
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

ProxyTo = Callable[[Node], Proxy]
SILENT = "no broker events, polling for changes"
HEARD = "broker events received again"
EVENTS = ("exchanges", "/", "amq.rabbitmq.event", "bindings", "source")


def listeners(site: Site) -> list[str]:
    names = [each["client_properties"].get("connection_name") for each in site.node.admin.get("connections")]
    return [name for name in names if name == "federation-agent: listening to events"]


def test_one_connection_hears_definitions_and_bindings(
    agent_of: AgentOf, borrowed: Borrowed, site_on: SiteOn, there: Site, proxy_to: ProxyTo
) -> None:
    here = site_on(borrowed())  # other tests' agents listen on a shared one
    here.exchange().queue("k")
    proxy = proxy_to(here.node)
    agent = agent_of(here.node, uri=here.node.uri(here.vhost, port=proxy.port)).write({here.vhost: federated(there)})
    agent.start(BY_EVENTS).wait_for("running", (here.vhost, X, "origin"))
    eventually(lambda: len(listeners(here)) == 1, what="one connection listens")
    by_queue: dict[str, set[str]] = {}
    for each in here.node.admin.get(*EVENTS):
        by_queue.setdefault(each["destination"], set()).add(each["routing_key"])
    assert {"binding.*"} in by_queue.values()  # a storm of these delays nothing else
    assert any("policy.*" in keys and "binding.*" not in keys for keys in by_queue.values())

    proxy.cut()
    agent.wait_logged(HEARD)
    [silent] = agent.logged(SILENT)  # for both who listened
    assert "downstream 127.0.0.1" in silent["reason"]
    assert agent.logged("definitions not read") == []
    agent.wait_for("running", (here.vhost, X, "origin"))  # the connection of the link was cut as well
    here.bind("l")
    there.wait_bound("k", "l")
