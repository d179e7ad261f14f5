"""Federation and Shovel objects of RabbitMQ's Messaging Topology Operator: what it makes of them, read as it is.

The values are those of v1.20.1 (internal/federation_definition.go, internal/shovel_definition.go), as its client
rabbit-hole v3.5.0 writes them as JSON: URIs are always a list, which the operator splits at commas; of what an object
doesn't set, all is left out but an upstream's `reconnect-delay: 0` and `trust-user-id: false`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, X
from tests.lab.admin import AdminError
from tests.lab.node import NATIVE_PLUGINS, Node


def upstream(site: Site, **keys: Any) -> dict[str, Any]:
    return {"uri": [site.uri, site.uri], "reconnect-delay": 0, "trust-user-id": False} | keys


def every_upstream_key(site: Site) -> dict[str, Any]:
    return upstream(
        site,
        **{
            "expires": 3_600_000,
            "message-ttl": 60_000,
            "max-hops": 2,
            "prefetch-count": 200,
            "ack-mode": "on-confirm",
            "exchange": X,
            "queue": "q",
            "queue-type": "quorum",
            "resource-cleanup-mode": "never",
        },
    )


def shovel(source: Site, destination: Site) -> dict[str, Any]:
    return {
        "dest-uri": [destination.uri],
        "src-uri": [source.uri],
        "ack-mode": "on-confirm",
        "dest-publish-properties": {"delivery_mode": 2},
        "dest-queue": "dest",
        "prefetch-count": 100,
        "src-consumer-args": {"x-priority": 10},
        "src-delete-after": "never",
        "src-queue": "src",
    }


@pytest.mark.versions
def test_its_objects_are_links_once_the_plugins_are_disabled(
    borrowed: Borrowed, second_broker: Node, site_on: SiteOn, agent_of: AgentOf
) -> None:
    node = borrowed(release="sid", plugins=NATIVE_PLUGINS)
    here, there, admin = site_on(node), site_on(second_broker), node.admin
    upstreams = {X: every_upstream_key(there), "least": upstream(there)}
    for name, value in upstreams.items():
        admin.parameter("federation-upstream", here.vhost, name, value)
        admin.policy(here.vhost, name, f"^{name}$", definition={"federation-upstream": name}, apply_to="exchanges")
    admin.parameter("shovel", here.vhost, "s", shovel(there, here))
    node.run("rabbitmq-plugins", "disable", "rabbitmq_federation_common", "rabbitmq_shovel")
    for name in upstreams:
        here.exchange(name).queue("k", exchange=name)
    agent = agent_of(node).write(definitions={"management": True}).start()
    agent.wait_running(3)
    there.publish(["moved"], "src", exchange="")
    assert here.take(1, queue="dest") == ["moved"]
    for name in upstreams:
        there.wait_bound("k", exchange=name)
        there.publish([name], "k", exchange=name)
        assert here.take(1) == [name]
    # With its plugin disabled, a broker takes no parameter of a component any more, and gives up those that it has.
    with pytest.raises(AdminError, match="component shovel not found"):
        admin.parameter("shovel", here.vhost, "s", shovel(there, here) | {"prefetch-count": 50})
    admin.delete("parameters", "shovel", here.vhost, "s")
    agent.wait_running(2)
