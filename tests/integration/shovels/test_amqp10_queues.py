"""Shovels of AMQP 1.0 between queues of other kinds and releases, and beside an alarm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import error_of, links_of, named, shovel
from tests.integration.shovels.test_alarms import memory_alarm
from tests.integration.shovels.test_amqp10 import IN_CORE, KINDS, PLUGIN, Amqp10, ends, sites
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import eventually

COUNT: Final = 500
PREFETCH: Final = 50
ANSWERED_WITHIN: Final = 5  # seconds
QUORUM: Final = {"x-queue-type": "quorum"}
STREAM: Final = {"x-queue-type": "stream"}
DEAD: Final = {"x-dead-letter-exchange": "", "x-message-ttl": 1}

pytestmark = pytest.mark.versions


def test_between_queues_of_all_kinds(
    agent_of: AgentOf, here: Site, core: Amqp10, broker_on: Callable[..., Node], site_on: SiteOn
) -> None:
    """Quorum queues of the plugin and of the core, where each end has its own form of addresses; a stream as the
    destination, which is read by AMQP 0-9-1 then, as a stream should be; and dead letters, which tell where they
    died."""
    plugin = Amqp10(site_on(broker_on(None, plugins=(*DEFAULT_PLUGINS, PLUGIN), name="amqp10")), is_in_core=False)
    for ten in (plugin, core):
        for queue in ("quorum src", "quorum dest"):
            ten.site.node.admin.queue(ten.site.vhost, queue, arguments=QUORUM)
    defined = {
        "up": plugin.end("src", "quorum src") | core.end("dest", "quorum dest"),
        "down": core.end("src", "quorum src") | plugin.end("dest", "quorum dest"),
    }
    first = {"x-stream-offset": "first"}
    for kind in ("both", "to"):
        sites(kind, core, here)[0].queue(name=f"src {kind}")
        core.site.node.admin.queue(core.site.vhost, f"stream {kind}", arguments=STREAM)
        defined[f"stream {kind}"] = ends(kind, core, here, src=f"src {kind}", dest=f"stream {kind}")
        defined[f"read {kind}"] = shovel(
            core.site, here, src_queue=f"stream {kind}", dest_queue=f"copy {kind}", src_consumer_args=first
        )
    for kind in ("both", "from"):
        arguments = DEAD | {"x-dead-letter-routing-key": f"dead {kind}"}
        core.site.queue(name=f"dead {kind}").node.admin.queue(core.site.vhost, f"dies {kind}", arguments=arguments)
        sites(kind, core, here)[1].queue(name=f"died {kind}")
        defined[f"died {kind}"] = ends(kind, core, here, src=f"dead {kind}", dest=f"died {kind}")
    agent_of(here.node).write({here.vhost: {"shovels": defined}}).start().wait_running(len(defined))

    for source, destination in ((plugin.site, core.site), (core.site, plugin.site)):
        source.publish(numbered(COUNT), "quorum src", exchange="")
        assert destination.take(COUNT, queue="quorum dest") == numbered(COUNT)
        wait_acknowledged(source, "quorum src")
    for kind in ("both", "to"):
        source, _ = sites(kind, core, here)
        source.publish(numbered(COUNT), f"src {kind}", exchange="")
        assert here.take(COUNT, queue=f"copy {kind}") == numbered(COUNT)
        wait_acknowledged(source, f"src {kind}")
    for kind in ("both", "from"):
        with core.user() as user:
            assert user.send(f"dies {kind}", {"body": "m", "properties": {"mine": "yes"}}) == ["accepted"]
        [found] = messages(sites(kind, core, here)[1].uri, f"died {kind}", 1)
        headers: dict[str, Any] = {**found.headers}
        [death] = headers["x-death"]
        assert (found.body, headers["mine"]) == (b"m", "yes")
        died = (death["queue"], death["reason"], death["count"], death["routing-keys"])
        assert died == (f"dies {kind}", "expired", 1, [f"dies {kind}"])


def wait_acknowledged(site: Site, queue: str) -> None:
    eventually(lambda: depth(site.uri, queue) == 0, what="all are acknowledged")


def test_alarms(agent_of: AgentOf, here: Site, site_on: SiteOn, borrowed: Borrowed) -> None:
    """At the destination the shovel shows that it is blocked, takes no more than its prefetch, and goes on afterwards.
    At the source to take messages away is what helps. The broker takes no requests then, so how many wait isn't
    shown, and that goes on for longer than an answer may take."""
    ten = Amqp10(site_on(borrowed(release=IN_CORE)), is_in_core=True)
    blocked = ("both", "to")
    defined = {}
    for kind in KINDS:
        source, destination = sites(kind, ten, here)
        source.queue(name=f"src {kind}").publish(numbered(COUNT), f"src {kind}", exchange="")
        destination.queue(name=f"dest {kind}")
        defined[kind] = ends(kind, ten, here, src=f"src {kind}", dest=f"dest {kind}")
    for kind in blocked:
        defined[kind] |= {"src-prefetch-count": PREFETCH}
    defined["from"]["src-uri"] += f"?connection_timeout={1_000 * ANSWERED_WITHIN}"
    agent = agent_of(here.node)
    with memory_alarm(ten.site.node):
        agent.write({here.vhost: {"shovels": defined}}).start()
        agent.wait_for("running", named(here, "from"))
        assert here.take(COUNT, queue="dest from") == numbered(COUNT)
        agent.wait_for("blocked", *(named(here, kind) for kind in blocked))
        for kind in blocked:
            source, destination = sites(kind, ten, here)
            assert error_of(agent, here, kind).startswith("shovel destination blocked: the broker gives no credit")
            assert depth(destination.uri, f"dest {kind}") == 0
            assert depth(source.uri, f"src {kind}") >= COUNT - 2 * PREFETCH
        time.sleep(ANSWERED_WITHIN + 2)
        assert agent.links()[named(here, "from")]["status"] == "running"
    agent.wait_for("running", *(named(here, kind) for kind in blocked))
    for kind in blocked:
        source, destination = sites(kind, ten, here)
        assert destination.take(COUNT, queue=f"dest {kind}") == numbered(COUNT)
        wait_acknowledged(source, f"src {kind}")
    ten.site.publish(numbered(COUNT), "src from", exchange="")
    assert here.take(COUNT, queue="dest from") == numbered(COUNT)
    assert not any(link["reconnects"] for link in links_of(agent).values())
    assert "backoff" not in agent.history(*named(here, "from"))
