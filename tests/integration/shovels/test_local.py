"""Shovels whose ends are `local`: the downstream itself, whatever its URI says; messages go by AMQP 0-9-1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, links_of, named, parameter, shovels, wait_error
from tests.integration.shovels.test_amqp10 import IN_CORE, Amqp10
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import eventually

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


QUORUM: Final = {"x-queue-type": "quorum"}
FEW: Final = {"max-length": 10, "overflow": "reject-publish"}


def test_they_do_as_others_do(agent_of: AgentOf, own: Site, spare: Site) -> None:
    """Host and user of the URI are nobody's, or there are none: the queues are in its vhosts here."""
    own.exchange("to.x").queue("k", name="dest.x", exchange="to.x").exchange("from.x")
    own.queue(name="src.100").publish(numbered(300), "src.100", exchange="")
    own.queue(name="src.all").publish(numbered(300), "src.all", exchange="")
    own.node.admin.policy(own.vhost, "few", "^dest.few$", definition=FEW, apply_to="queues")
    here = f"amqp:///{own.vhost}"
    to_x = {"src-uri": here, "dest-protocol": "local", "dest-uri": here, "dest-exchange": "to.x"}
    from_x = {"src-protocol": "local", "src-uri": here, "src-exchange": "from.x", "src-exchange-key": "k.#"}
    defined = {
        "between": local("src", own, "src.between")
        | local("dest", spare, "dest.between")
        | {"src-consumer-name": "mine", "dest-add-forward-headers": True},
        "x": local("src", own, "src.x") | to_x | {"dest-exchange-key": "k"},
        "from x": from_x | local("dest", own, "dest.from x"),
        "missing": between(own, "missing") | {"dest-predeclared": True},
        "few": between(own, "few"),
        "quorum": between(own, "quorum") | {"src-queue-args": QUORUM, "dest-queue-args": QUORUM},
        "deleted": between(own, "deleted"),
        "100": between(own, "100") | {"src-delete-after": 100},
        "all": between(own, "all") | {"src-delete-after": "queue-length"},
    }
    quickly = {name: found | {"reconnect-delay": 0.5} for name, found in defined.items()}
    agent = agent_of(own.node).write({own.vhost: {"shovels": quickly}}).start()
    agent.wait_for("running", *(named(own, name) for name in defined.keys() - {"missing", "100", "all"}))
    views = {each["name"]: each for each in ask(agent, "/api/shovels")}
    assert (views["between"]["src_protocol"], views["between"]["dest_protocol"]) == ("local", "local")
    eventually(lambda: "mine" in tags(own), what="the consumer is named")

    own.publish(numbered(500), "src.between", exchange="", headers={"mine": "yes"})
    found = messages(spare.uri, "dest.between", 500)
    assert [each.body.decode() for each in found] == numbered(500)
    headers: dict[str, Any] = {**found[0].headers}
    assert (headers["mine"], headers["x-opt-shovel-name"]) == ("yes", "between")

    passes(own, "x")
    own.delete_queue("src.x")
    eventually(lambda: "backoff" in agent.history(*named(own, "x")), what="it is noticed")
    agent.wait_for("running", named(own, "x"))
    passes(own, "x")  # its source was declared again

    assert own.publish(["not bound"], "other", exchange="from.x") == 0
    assert own.publish(numbered(10), "k.a", exchange="from.x") == 10
    assert own.take(10, queue="dest.from x") == numbered(10)

    wait_error(agent, own, "shovel destination", "queue 'dest.missing' is missing", "dest-predeclared", name="missing")
    own.queue(name="dest.missing")
    agent.wait_for("running", named(own, "missing"))
    passes(own, "missing")

    own.publish(numbered(20), "src.few", exchange="")
    eventually(lambda: "10 refused by the destination" in str(links_of(agent)["few"]["error"]), what="some are refused")
    own.node.admin.delete("policies", own.vhost, "few")
    assert sorted(own.take(20, queue="dest.few")) == numbered(20)

    queues = {each["name"]: each["arguments"] for each in own.node.admin.get("queues", own.vhost)}
    assert [queues[f"{end}.quorum"].get("x-queue-type") for end in ("src", "dest")] == ["quorum", "quorum"]
    passes(own, "quorum")

    own.delete_queue("dest.deleted")
    own.publish(numbered(100), "src.deleted", exchange="")  # it is declared again, and none of these is lost
    eventually(lambda: "backoff" in agent.history(*named(own, "deleted")), what="it is noticed")
    agent.wait_for("running", named(own, "deleted"))
    assert own.take(100, queue="dest.deleted") == numbered(100)

    agent.wait_for("terminated", named(own, "100"), named(own, "all"))
    assert own.take(100, queue="dest.100") == numbered(100)
    assert own.take(300, queue="dest.all") == numbered(300)
    eventually(lambda: depth(own.uri, "src.100") == 200, what="the others are back")
    left = ("between", "x", "missing", "few", "quorum", "deleted", "all")
    eventually(lambda: all(depth(own.uri, f"src.{name}") == 0 for name in left), what="all are acknowledged")


def between(site: Site, name: str) -> dict[str, Any]:
    return local("src", site, f"src.{name}") | local("dest", site, f"dest.{name}")


def passes(site: Site, name: str) -> None:
    site.publish(numbered(10), f"src.{name}", exchange="")
    assert site.take(10, queue=f"dest.{name}") == numbered(10)


def tags(site: Site) -> list[str]:
    return [each["consumer_tag"] for each in site.node.admin.get("consumers", site.vhost)]


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


@pytest.mark.versions
def test_of_streams_and_with_1_0_at_the_other_end(agent_of: AgentOf, core: Amqp10) -> None:
    """Streams in each mode, from their beginning and from now on."""
    own = core.site.queue(name="src").queue(name="dest.to 1.0").queue(name="from").queue(name="dest.from 1.0")
    modes = product(("on-confirm", "on-publish", "no-ack"), ("first", "next"))
    streams = {f"{mode} {offset}": (mode, offset) for mode, offset in modes}
    for name in ("stream", *(f"dest.{name}" for name in streams)):
        own.node.admin.queue(own.vhost, name, arguments={"x-queue-type": "stream"})
    defined = {
        name: local("src", own, "stream")
        | local("dest", own, f"dest.{name}")
        | {"src-predeclared": True, "dest-predeclared": True, "ack-mode": mode}
        | ({"src-consumer-args": {"x-stream-offset": offset}} if offset == "first" else {})
        for name, (mode, offset) in streams.items()
    }
    defined["to 1.0"] = local("src", own, "src") | core.end("dest", "dest.to 1.0")
    defined["from 1.0"] = core.end("src", "from") | local("dest", own, "dest.from 1.0")
    agent = agent_of(own.node).write({own.vhost: {"shovels": defined}}).start()
    agent.wait_running(len(defined))
    for queue in ("stream", "src", "from"):
        own.publish(numbered(500), queue, exchange="")
    assert own.take(500, queue="dest.to 1.0") == numbered(500)
    assert own.take(500, queue="dest.from 1.0") == numbered(500)
    for name in streams:
        eventually(lambda name=name: links_of(agent)[name]["forwarded"] == 500, what="all are forwarded")  # type: ignore[misc]
        own.wait_depth(500, f"dest.{name}")
