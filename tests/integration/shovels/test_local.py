"""Shovels whose ends are `local`: the downstream itself, whatever its URI says; messages go by AMQP 0-9-1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, parameter, parameters, running, shovels, wait_error
from tests.integration.shovels.test_amqp10 import IN_CORE, Amqp10
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.user_program import consumers, depth, messages, numbered, times
from tests.lab.waiting import eventually
from tests.tiers import thorough

NOWHERE: Final = "amqp://nobody:wrong@nowhere.invalid"
RELEASES: Final = ("here", pytest.param(IN_CORE, marks=pytest.mark.versions))


def local(which: str, site: Site, queue: str) -> dict[str, Any]:
    """The keys of one end, in that vhost."""
    return {
        f"{which}-protocol": "local",
        f"{which}-uri": f"{NOWHERE}/{quote(site.vhost, safe='')}",
        f"{which}-queue": queue,
    }


@pytest.fixture(params=RELEASES)
def own(request: pytest.FixtureRequest, broker: Node, broker_on: Callable[..., Node], site_on: SiteOn) -> Site:
    return site_on(broker if request.param == "here" else broker_on(request.param))


@pytest.fixture
def spare(own: Site) -> Iterator[Site]:
    """Another vhost of the same broker."""
    with own.node.admin.temporary_vhost(f"{own.vhost} b") as made:
        yield Site(own.node, made)


@pytest.mark.parametrize("ack_mode", ["on-confirm", thorough("on-publish"), thorough("no-ack")])
def test_between_vhosts(agent_of: AgentOf, own: Site, spare: Site, ack_mode: str) -> None:
    """Both queues are declared; host and user of the URI are nobody's."""
    definition = local("src", own, "src") | local("dest", spare, "dest")
    keys = {"ack-mode": ack_mode, "src-consumer-name": "mine", "dest-add-forward-headers": True}
    agent = running(agent_of(own.node), own, definition | keys)
    [view] = ask(agent, "/api/shovels")
    assert (view["src_protocol"], view["dest_protocol"]) == ("local", "local")
    own.publish(numbered(2_000), "src", exchange="", headers={"mine": "yes"})
    found = messages(spare.uri, "dest", 2_000)
    assert [each.body.decode() for each in found] == numbered(2_000)
    headers: dict[str, Any] = {**found[0].headers}
    assert headers["mine"] == "yes"
    assert headers["x-opt-shovel-name"] == "drain"
    assert depth(own.uri, "src") == 0
    eventually(lambda: tags(own) == ["mine"], what="the consumer is named")


@pytest.mark.versions
def test_it_adds_what_the_plugins_local_shovel_adds(agent_of: AgentOf, borrowed: Borrowed) -> None:
    node = borrowed(release=IN_CORE, plugins=NATIVE_PLUGINS)
    own = Site(node, "/")
    keys: dict[str, Any] = {"src-protocol": "local", "src-uri": "amqp://", "dest-protocol": "local"}
    keys |= {"dest-uri": "amqp://", "dest-add-forward-headers": True, "dest-add-timestamp-header": True}
    parameter(own, keys | {"src-queue": "a", "dest-queue": "theirs"}, "s")
    sections = shovels(keys | {"src-queue": "b", "dest-queue": "ours"}, "t")
    agent_of(node).write({own.vhost: sections}).start().wait_for("running", named(own, "t"))
    forged: dict[str, Any] = {"x-opt-shovelled-by": "another", "x-opt-shovelled-timestamp": 1, "own": "kept"}
    for queue in ("a", "b"):
        own.publish(["none"], queue, exchange="")
        own.publish(["some"], queue, exchange="", headers=forged)
    theirs, ours = messages(own.uri, "theirs", 2), messages(own.uri, "ours", 2)
    for their, our in zip(theirs, ours, strict=True):
        written: dict[str, Any] = {**their.headers}
        expected = written | {"x-opt-shovel-name": "t"}
        found: dict[str, Any] = {**our.headers}
        assert abs(found.pop("x-opt-shovelled-timestamp") - expected.pop("x-opt-shovelled-timestamp")) < 60_000
        assert found == expected


def tags(site: Site) -> list[str]:
    return [each["consumer_tag"] for each in site.node.admin.get("consumers", site.vhost)]


def test_without_a_host_to_an_exchange_and_a_queue_that_is_deleted(agent_of: AgentOf, own: Site) -> None:
    """The source queue is declared again."""
    own.exchange("to.x").queue("k", name="dest", exchange="to.x")
    definition = local("src", own, "src") | {
        "src-uri": f"amqp:///{own.vhost}",
        "dest-protocol": "local",
        "dest-uri": f"amqp:///{own.vhost}",
        "dest-exchange": "to.x",
        "dest-exchange-key": "k",
    }
    agent = running(agent_of(own.node), own, definition | {"reconnect-delay": 1})
    own.publish(numbered(10), "src", exchange="")
    assert own.take(10, queue="dest") == numbered(10)
    own.delete_queue("src")
    eventually(lambda: "backoff" in agent.history(*named(own)), what="it is noticed")
    agent.wait_for("running", named(own))
    own.publish(numbered(10), "src", exchange="")
    assert own.take(10, queue="dest") == numbered(10)


def test_a_missing_destination_that_is_predeclared_is_waited_for(agent_of: AgentOf, own: Site) -> None:
    keys = {"dest-predeclared": True, "reconnect-delay": 1}
    definition = local("src", own, "src") | local("dest", own, "dest") | keys
    agent = agent_of(own.node).write({own.vhost: shovels(definition)}).start()
    wait_error(agent, own, "shovel destination", "queue 'dest' is missing", "dest-predeclared")
    own.queue(name="dest")
    agent.wait_for("running", named(own))
    own.publish(numbered(10), "src", exchange="")
    assert own.take(10, queue="dest") == numbered(10)


def test_from_an_exchange(agent_of: AgentOf, own: Site) -> None:
    own.exchange("from.x")
    source = {"src-protocol": "local", "src-uri": f"amqp:///{own.vhost}", "src-exchange": "from.x"}
    running(agent_of(own.node), own, source | {"src-exchange-key": "k.#"} | local("dest", own, "dest"))
    assert own.publish(["not bound"], "other", exchange="from.x") == 0
    assert own.publish(numbered(10), "k.a", exchange="from.x") == 10
    assert own.take(10, queue="dest") == numbered(10)


def test_what_the_destination_refuses_is_not_lost(agent_of: AgentOf, own: Site) -> None:
    few = {"x-max-length": 10, "x-overflow": "reject-publish"}
    definition = local("src", own, "src") | local("dest", own, "dest") | {"dest-queue-args": few}
    agent = running(agent_of(own.node), own, definition)
    own.publish(numbered(100), "src", exchange="")
    wait_error(agent, own, "refused by the destination")
    assert sorted(own.take(100, queue="dest")) == numbered(100)
    eventually(lambda: depth(own.uri, "src") == 0, what="all are acknowledged")


def test_from_quorum_queue_to_quorum_queue(agent_of: AgentOf, own: Site) -> None:
    """Both are declared."""
    quorum = {"x-queue-type": "quorum"}
    keys = {"src-queue-args": quorum, "dest-queue-args": quorum}
    running(agent_of(own.node), own, local("src", own, "src") | local("dest", own, "dest") | keys)

    def kinds() -> dict[str, str]:
        return {each["name"]: each["arguments"].get("x-queue-type") for each in own.node.admin.get("queues", own.vhost)}

    eventually(lambda: kinds() == {"src": "quorum", "dest": "quorum"}, what="both are declared")
    own.publish(numbered(500), "src", exchange="")
    assert own.take(500, queue="dest") == numbered(500)
    eventually(lambda: depth(own.uri, "src") == 0, what="all are acknowledged")


def test_a_destination_queue_that_is_deleted(agent_of: AgentOf, own: Site) -> None:
    """It is declared again, and nothing that comes then is lost."""
    agent = running(agent_of(own.node), own, local("src", own, "src") | local("dest", own, "dest"))
    own.publish(numbered(10), "src", exchange="")
    assert own.take(10, queue="dest") == numbered(10)
    own.delete_queue("dest")
    own.publish(numbered(100, start=10), "src", exchange="")
    agent.wait_for("running", named(own))
    own.wait_depth(100, "dest")
    assert own.take(100, queue="dest") == numbered(100, start=10)
    eventually(lambda: depth(own.uri, "src") == 0, what="all are acknowledged")


@pytest.mark.parametrize("after", [100, "queue-length"])
def test_it_ends(agent_of: AgentOf, own: Site, after: int | str) -> None:
    own.queue(name="src").publish(numbered(300), "src", exchange="")
    definition = local("src", own, "src") | local("dest", own, "dest") | {"src-delete-after": after}
    agent = agent_of(own.node).write({own.vhost: shovels(definition)}).start()
    agent.wait_for("terminated", named(own))
    count = 300 if after == "queue-length" else 100
    assert own.take(count, queue="dest") == numbered(count)
    eventually(lambda: depth(own.uri, "src") == 300 - count, what="the others are back")


@pytest.mark.versions
@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize("arguments", [{}, {"src-consumer-args": {"x-stream-offset": "first"}}], ids=["next", "first"])
def test_from_stream_to_stream(agent_of: AgentOf, core: Amqp10, ack_mode: str, arguments: dict[str, Any]) -> None:
    own = core.site
    for name in ("src", "dest"):
        own.node.admin.queue(own.vhost, name, arguments={"x-queue-type": "stream"})
    keys = {"src-predeclared": True, "dest-predeclared": True, "ack-mode": ack_mode}
    definition = local("src", own, "src") | local("dest", own, "dest") | keys | arguments
    agent = running(agent_of(own.node), own, definition)
    own.publish(numbered(1_000), "src", exchange="")
    eventually(lambda: ask(agent, "/api/links")[0]["forwarded"] == 1_000, what="all are forwarded")
    own.wait_depth(1_000, "dest")


@pytest.mark.versions
@pytest.mark.parametrize("end", ["source", "destination"])
def test_the_other_end_speaks_1_0(agent_of: AgentOf, core: Amqp10, end: str) -> None:
    own = core.site.queue(name="src").queue(name="dest")
    definition = (
        local("src", own, "src") | core.end("dest", "dest")
        if end == "destination"
        else core.end("src", "src") | local("dest", own, "dest")
    )
    running(agent_of(own.node), own, definition)
    own.publish(numbered(500), "src", exchange="")
    assert own.take(500, queue="dest") == numbered(500)


@pytest.mark.thorough
@pytest.mark.versions
def test_the_plugin_lets_go_and_comes_back(agent_of: AgentOf, borrowed: Borrowed) -> None:
    """The parameter of a plugin that knows `local` is run while it is disabled."""
    node = borrowed(release=IN_CORE, plugins=NATIVE_PLUGINS)
    own = Site(node, "/")
    keys = {"src-protocol": "local", "src-uri": "amqp://", "dest-protocol": "local", "dest-uri": "amqp://"}
    parameter(own, keys | {"src-queue": "src", "dest-queue": "dest"})
    parameter(own, keys | {"src-queue": "src2", "dest-queue": "dest2", "src-delete-after": 20}, "twenty")
    agent = agent_of(node).write(definitions={"management": True}).start()
    agent.wait_for("standby", named(own), named(own, "twenty"))
    own.publish(numbered(100), "src", exchange="")
    assert own.take(100, queue="dest") == numbered(100)
    plugins = ("rabbitmq_shovel", "rabbitmq_shovel_management")
    node.run("rabbitmq-plugins", "disable", *plugins)
    agent.wait_for("running", named(own), named(own, "twenty"))
    own.publish(numbered(1_000), "src", exchange="")
    own.publish(numbered(30), "src2", exchange="")
    assert times(own.take(1_000, queue="dest")) == dict.fromkeys(numbered(1_000), 1)
    assert own.take(20, queue="dest2") == numbered(20)
    eventually(lambda: parameters(own) == ["drain"], what="the parameter is deleted")
    node.run("rabbitmq-plugins", "enable", *plugins)
    agent.wait_for("standby", named(own))
    eventually(lambda: consumers(own.uri, "src") == 1, what="the plugin consumes")
    own.publish(numbered(1_000), "src", exchange="")
    assert times(own.take(1_000, queue="dest")) == dict.fromkeys(numbered(1_000), 1)
