"""The native plugins are disabled and enabled again while links of all kinds run: the agent takes over, and lets go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent, Named
from tests.integration.federation.sites import Site
from tests.integration.queue_links.scene import User
from tests.integration.shovels.shoveling import parameter, shovel
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

PLUGINS = (
    ("rabbitmq_federation", "rabbitmq_federation_management"),
    ("rabbitmq_shovel", "rabbitmq_shovel_management"),
)
EXCHANGE, QUEUE, SHOVEL = "fed.x", "work", "drain"


def define(here: Site, there: Site, uri: str) -> None:
    """One link of each kind, as operators of the plugins define them."""
    admin = here.node.admin
    here.exchange().queue("k")
    for site in (here, there):
        site.node.admin.queue(site.vhost, QUEUE)
    admin.parameter("federation-upstream", here.vhost, "origin", {"uri": uri})
    definition = {"federation-upstream": "origin"}
    admin.policy(here.vhost, "exchanges", r"^fed\.", definition=definition, apply_to="exchanges")
    admin.policy(here.vhost, "queues", f"^{QUEUE}$", definition=definition, apply_to="queues")
    parameter(here, shovel(there, here), SHOVEL)


def links(here: Site) -> tuple[Named, Named, Named]:
    return (here.vhost, EXCHANGE, "origin"), (here.vhost, QUEUE, "origin"), (here.vhost, SHOVEL, "")


def wait_native(here: Site) -> None:
    admin = here.node.admin

    def run() -> bool:
        found: list[dict[str, Any]] = admin.get("federation-links", here.vhost)
        states = [each["state"] for each in admin.get("shovels", here.vhost)]
        return [each["status"] for each in found] == ["running"] * 2 and states == ["running"]

    eventually(run, what="the plugins run all three", ignoring=Exception)


def check_all_flow(here: Site, there: Site, user: User, start: int) -> None:
    bodies = numbered(100, start=start)
    there.wait_bound("k")
    there.publish(bodies)
    there.publish(bodies, QUEUE, exchange="")
    there.publish(bodies, "src", exchange="")
    assert here.take(100) == bodies
    assert here.take(100, queue="dest") == bodies
    eventually(lambda: user.taken[-100:] == bodies, what="the queue link's messages")


def switch(node: Node, how: str) -> None:
    """One after the other: of two extensions at once, the HTTP API may lose its listener for good. It may do so over
    one, too, so it is begun again."""
    for plugins in PLUGINS:
        node.run("rabbitmq-plugins", how, *plugins)
    node.ctl("eval", "rabbit_mgmt_app:reset_dispatcher([]).")


def look_again(agent: Agent, node: Node) -> None:
    """Without this the agent looks within half a minute, and again where nothing answers."""
    # The listener of the HTTP API goes for a moment with the extension that comes to it, or leaves it.
    eventually(lambda: node.admin.get("overview"), what="the HTTP API answers", ignoring=Exception)
    agent.reload()


def restarts(agent: Agent, here: Site) -> int:
    return sum(agent.history(*each).count("backoff") for each in links(here))


@pytest.mark.thorough
def test_links_of_all_kinds_change_over_and_back(
    agent_of: AgentOf, borrowed: Borrowed, there: Site, proxy_to: Callable[[Node | int], Proxy]
) -> None:
    """Nothing is lost or comes twice, and no link stays behind as `standby`. The plugin deletes its queue upstream
    when it is disabled, backlog and all, unless it can't reach it just then."""
    node, proxy = borrowed(plugins=NATIVE_PLUGINS), proxy_to(there.node)
    here = Site(node, "/")
    define(here, there, there.node.uri(there.vhost, port=proxy.port))
    wait_native(here)
    agent = agent_of(node).write(definitions={"management": True}).start()
    agent.wait_for("standby", *links(here))
    assert "federation plugin" in agent.links()[links(here)[0]]["error"]
    with User(here, QUEUE) as user:
        check_all_flow(here, there, user, 0)
        built = there.links_objects()[0]
        proxy.refuse()
        proxy.cut()
        there.publish(waiting := numbered(1_000, start=1_000))
        switch(node, "disable")
        proxy.accept()
        look_again(agent, node)
        agent.wait_for("running", *links(here))
        assert there.links_objects()[0] == built
        assert here.take(len(waiting)) == waiting
        check_all_flow(here, there, user, 100)
        there.publish(before := numbered(100, start=2_000))
        switch(node, "enable")
        look_again(agent, node)
        agent.wait_for("standby", *links(here))
        assert user.taken == numbered(200)
    wait_native(here)
    assert there.publish(after := numbered(100, start=2_100)) == len(after)
    assert here.take(200) == before + after
    with User(here, QUEUE) as user:  # the plugin sees no consumer that was there before it
        check_all_flow(here, there, user, 200)
    assert restarts(agent, here) <= 2 * len(links(here)), "it looked, and didn't try again and again"
