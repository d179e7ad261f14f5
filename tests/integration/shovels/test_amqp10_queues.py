"""Shovels of AMQP 1.0 between queues of other kinds and releases, and beside an alarm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, error_of, named, running, shovel, shovels
from tests.integration.shovels.test_alarms import memory_alarm
from tests.integration.shovels.test_amqp10 import IN_CORE, KINDS, PLUGIN, Amqp10, ends, sites
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import eventually
from tests.tiers import thorough

COUNT: Final = 1_000
PREFETCH: Final = 50
LONGER_THAN_AN_ANSWER: Final = 33.0  # may take
QUORUM: Final = {"x-queue-type": "quorum"}
STREAM: Final = {"x-queue-type": "stream"}

pytestmark = pytest.mark.versions


@pytest.mark.parametrize("backwards", [False, thorough(True)])
def test_between_quorum_queues_of_the_plugin_and_of_the_core(
    agent_of: AgentOf, here: Site, core: Amqp10, broker_on: Callable[..., Node], site_on: SiteOn, *, backwards: bool
) -> None:
    """Each end has its own form of addresses."""
    plugin = Amqp10(site_on(broker_on(None, plugins=(*DEFAULT_PLUGINS, PLUGIN), name="amqp10")), is_in_core=False)
    source, destination = (core, plugin) if backwards else (plugin, core)
    for ten, queue in ((source, "src"), (destination, "dest")):
        ten.site.node.admin.queue(ten.site.vhost, queue, arguments=QUORUM)
    running(agent_of(here.node), here, source.end("src", "src") | destination.end("dest", "dest"))
    source.site.publish(numbered(COUNT), "src", exchange="")
    assert destination.site.take(COUNT, queue="dest") == numbered(COUNT)
    eventually(lambda: depth(source.site.uri, "src") == 0, what="all are acknowledged")


@pytest.mark.parametrize("kind", ["both", thorough("to")])
def test_a_stream_as_destination(agent_of: AgentOf, here: Site, core: Amqp10, kind: str) -> None:
    """It is read by AMQP 0-9-1 then, as a stream should be."""
    source, destination = sites(kind, core, here)
    source.queue(name="src")
    destination.node.admin.queue(destination.vhost, "dest", arguments=STREAM)
    here.queue(name="copy")
    read = shovel(
        destination, here, src_queue="dest", dest_queue="copy", src_consumer_args={"x-stream-offset": "first"}
    )
    agent = (
        agent_of(here.node).write({here.vhost: {"shovels": {"drain": ends(kind, core, here), "read": read}}}).start()
    )
    agent.wait_for("running", named(here), named(here, "read"))
    source.publish(numbered(COUNT), "src", exchange="")
    assert here.take(COUNT, queue="copy") == numbered(COUNT)
    eventually(lambda: depth(source.uri, "src") == 0, what="all are acknowledged")


@pytest.mark.parametrize("kind", ["both", "from"])
def test_dead_letters_tell_where_they_died(agent_of: AgentOf, here: Site, core: Amqp10, kind: str) -> None:
    source, destination = sites(kind, core, here)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "src", "x-message-ttl": 1}
    source.queue(name="src").node.admin.queue(source.vhost, "dies", arguments=arguments)
    destination.queue(name="dest")
    running(agent_of(here.node), here, ends(kind, core, here))
    with core.user() as user:
        assert user.send("dies", {"body": "m", "properties": {"mine": "yes"}}) == ["accepted"]
    [found] = messages(destination.uri, "dest", 1)
    headers: dict[str, Any] = {**found.headers}
    [death] = headers["x-death"]
    assert (found.body, headers["mine"]) == (b"m", "yes")
    assert (death["queue"], death["reason"], death["count"], death["routing-keys"]) == ("dies", "expired", 1, ["dies"])


def test_an_alarm_at_the_source(agent_of: AgentOf, here: Site, site_on: SiteOn, borrowed: Borrowed) -> None:
    """To take messages away is what helps. The broker takes no requests then, so how many wait isn't shown."""
    ten = Amqp10(site_on(borrowed(release=IN_CORE)), is_in_core=True)
    ten.site.queue(name="src").publish(numbered(COUNT), "src", exchange="")
    here.queue(name="dest")
    agent = agent_of(here.node)
    with memory_alarm(ten.site.node):
        running(agent, here, ends("from", ten, here))
        assert here.take(COUNT, queue="dest") == numbered(COUNT)
    ten.site.publish(numbered(COUNT), "src", exchange="")
    assert here.take(COUNT, queue="dest") == numbered(COUNT)
    ask(agent, f"/api/shovels/vhost/{here.vhost}/drain/restart", "DELETE")
    agent.wait_for("running", named(here))
    with memory_alarm(ten.site.node):
        time.sleep(LONGER_THAN_AN_ANSWER)
        assert agent.links()[named(here)]["status"] == "running"
    assert "backoff" not in agent.history(*named(here))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "from"])
def test_an_alarm_at_the_destination(
    agent_of: AgentOf, here: Site, site_on: SiteOn, borrowed: Borrowed, kind: str
) -> None:
    """The shovel shows that it is blocked, takes no more than its prefetch, and goes on afterwards."""
    ten = Amqp10(site_on(borrowed(release=IN_CORE)), is_in_core=True)
    source, destination = sites(kind, ten, here)
    source.queue(name="src").publish(numbered(COUNT), "src", exchange="")
    destination.queue(name="dest")
    agent = agent_of(here.node)
    with memory_alarm(ten.site.node):
        agent.write({here.vhost: shovels(ends(kind, ten, here) | {"src-prefetch-count": PREFETCH})}).start()
        agent.wait_for("blocked", named(here))
        assert error_of(agent, here).startswith("shovel destination blocked: the broker gives no credit")
        assert depth(destination.uri, "dest") == 0
        assert depth(source.uri, "src") >= COUNT - 2 * PREFETCH
    agent.wait_for("running", named(here))
    assert destination.take(COUNT, queue="dest") == numbered(COUNT)
    eventually(lambda: depth(source.uri, "src") == 0, what="all are acknowledged")
    assert ask(agent, "/api/links")[0]["reconnects"] == 0
