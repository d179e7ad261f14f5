"""What a shovel moves, and where to: the cases of the plugin's own suite, between two brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aio_pika
import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, running, shovel, shovels
from tests.lab.node import Node
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import eventually


def test_from_queue_to_queue(agent_of: AgentOf, here: Site, there: Site) -> None:
    """In each mode: both are declared durable; what waits comes first, and its order stays."""
    modes, waiting, later = ("on-confirm", "on-publish", "no-ack"), numbered(200), numbered(500, start=200)
    defined = {mode: shovel(there, here, src_queue=mode, dest_queue=mode, ack_mode=mode) for mode in modes}
    for mode in modes:
        there.queue(name=mode).publish(waiting, mode, exchange="")
    agent_of(here.node).write({here.vhost: {"shovels": defined}}).start().wait_running(len(modes))
    for mode in modes:
        there.publish(later, mode, exchange="")
        assert here.take(700, queue=mode) == waiting + later
        assert here.node.admin.get("queues", here.vhost, mode)["durable"]
        assert depth(there.uri, mode) == 0


def test_properties_and_headers(agent_of: AgentOf, here: Site, there: Site) -> None:
    there.queue(name="src").publish(["a"], "src", exchange="", headers={"mine": "yes"})
    there.publish(["b"], "src", exchange="", headers={"x-shovelled": [{"shovelled-by": "earlier"}]})
    definition = shovel(
        there,
        here,
        dest_publish_properties={"delivery_mode": 1, "cluster_id": "x", "content_type": "text/plain"},
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
    )
    running(agent_of(here.node), here, definition)
    first, second = messages(here.uri, "dest", 2)
    assert (first.delivery_mode, first.cluster_id, first.content_type) == (1, "x", "text/plain")
    headers: dict[str, Any] = {**first.headers}
    assert headers["mine"] == "yes"
    [entry] = headers["x-shovelled"]
    assert list(entry) == [
        "shovelled-by", "shovel-type", "shovel-name", "shovel-vhost", "src-uri", "dest-uri", "src-queue", "dest-queue",
    ]  # fmt: skip
    assert entry["shovelled-by"] == here.node.admin.get("cluster-name")["name"]
    assert (entry["shovel-type"], entry["shovel-name"], entry["shovel-vhost"]) == ("dynamic", "drain", here.vhost)
    assert "guest" not in entry["src-uri"] + entry["dest-uri"]
    assert int(headers["x-shovelled-timestamp"]) > 1_600_000_000
    again: dict[str, Any] = {**second.headers}
    assert [each["shovelled-by"] for each in again["x-shovelled"]][1:] == ["earlier"]


def test_from_an_exchange_to_an_exchange(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Its queue is exclusive and goes with the shovel, as the plugin's does."""
    there.exchange("from.x")
    here.exchange("to.x").queue("new.#", name="got", exchange="to.x")
    definition = shovel(
        there, here, src_exchange="from.x", src_exchange_key="a.*", dest_exchange="to.x", dest_exchange_key="new.k"
    )
    agent = running(agent_of(here.node), here, definition)
    [own] = there.node.admin.get("queues", there.vhost)
    assert own["exclusive"]
    there.publish(numbered(50), "a.b", exchange="from.x")
    found = messages(here.uri, "got", 50)
    assert {each.routing_key for each in found} == {"new.k"}
    assert [each.body.decode() for each in found] == numbered(50)
    [link] = ask(agent, "/api/links")
    ask(agent, f"/api/links/{link['id']}/pause", "POST")
    eventually(lambda: there.node.admin.get("queues", there.vhost) == [], what="the queue is gone")


def test_what_the_destination_leaves_open_stays_each_messages_own(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Without any destination messages go where they were published to."""
    given: dict[str, dict[str, str]]
    given = {"key": {"dest-exchange-key": "other"}, "exchange": {"dest-exchange": "to.x"}, "nothing": {}}
    there.exchange("shared.x")
    here.exchange("shared.x").exchange("to.x")
    expected = {"key": ("shared.x", "other"), "exchange": ("to.x", "exchange"), "nothing": ("shared.x", "nothing")}
    defined = {}
    for name, keys in given.items():
        there.queue(name, name=name, exchange="shared.x")
        exchange, key = expected[name]
        here.queue(key, name=name, exchange=exchange)
        defined[name] = {"src-uri": there.uri, "src-queue": name, "dest-uri": here.uri} | keys
    agent_of(here.node).write({here.vhost: {"shovels": defined}}).start().wait_running(len(given))
    for name in given:
        there.publish([name], name, exchange="shared.x")
        [found] = messages(here.uri, name, 1)
        assert (found.exchange, found.routing_key) == expected[name]


def test_both_ends_on_the_downstream_itself_and_a_changed_definition(agent_of: AgentOf, here: Site) -> None:
    """URIs without a host; queues that exist with other arguments are used as they are."""
    uri = f"amqp:///{here.vhost}"
    for name in ("src", "dest", "dest2"):
        here.node.admin.queue(here.vhost, name, durable=False, arguments={"x-max-length": 100})
    definition = shovel(here, here, src_queue_args={"x-expires": 60_000}) | {"src-uri": uri, "dest-uri": uri}
    agent = running(agent_of(here.node), here, definition)
    here.publish(numbered(10), "src", exchange="")
    assert here.take(10, queue="dest") == numbered(10)
    agent.write({here.vhost: shovels(definition | {"dest-queue": "dest2"})})
    eventually(lambda: ask(agent, "/api/shovels")[0]["dest_queue"] == "dest2", what="the definition is in force")
    agent.wait_for("running", named(here))
    here.publish(numbered(10), "src", exchange="")
    assert here.take(10, queue="dest2") == numbered(10)
    [view] = ask(agent, f"/api/shovels/{here.vhost}")
    expected = {"state": "running", "src_queue": "src", "remaining": "unlimited", "blocked_status": "running"}
    assert expected.items() <= view.items()
    assert (view["vhost"], view["name"], view["type"], view["pending"]) == (here.vhost, "drain", "dynamic", 0)
    eventually(lambda: ask(agent, "/api/shovels")[0]["forwarded"] == 20, what="all are counted")


def test_shovels_between_the_same_brokers_share_connections(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Natively each has two of its own."""
    names = [f"s{number}" for number in range(20)]
    found = {name: shovel(there, here, src_queue=name, dest_queue=name) for name in names}
    agent_of(here.node).write({here.vhost: {"shovels": found}}).start().wait_running(20)
    for name in names:
        there.publish([name], name, exchange="")
    eventually(lambda: all(depth(here.uri, name) == 1 for name in names), what="each has moved its own")
    for name in (names[0], names[10], names[-1]):
        assert here.take(1, queue=name) == [name]
    eventually(lambda: agents_connections(there) >= 1, what="the broker lists them")
    assert agents_connections(there) <= 2


def agents_connections(site: Site) -> int:
    opened = site.node.admin.get("connections")
    ours = (each for each in opened if each["client_properties"]["product"] == "federation-agent")
    return sum(each["vhost"] == site.vhost for each in ours)


def test_shovels_from_exchanges_share_what_leads_to_their_destination(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """Only where messages come from, each has a queue of its own, which goes with its connection."""
    there.exchange("logs", "fanout")
    found = {f"s{number}": shovel(there, here, src_exchange="logs", dest_queue=f"d{number}") for number in range(10)}
    agent_of(here.node).write({here.vhost: {"shovels": found}}).start().wait_running(10)
    there.publish(["m"], exchange="logs")
    eventually(lambda: all(depth(here.uri, f"d{number}") == 1 for number in range(10)), what="each has its copy")
    for name in ("d0", "d9"):
        assert here.take(1, queue=name) == ["m"]
    eventually(lambda: agents_connections(there) >= 10, what="the broker lists them")
    assert agents_connections(here) <= 3


def test_several_uris_at_either_end(agent_of: AgentOf, lab_dead_uri: str, here: Site, there: Site) -> None:
    definition = shovel(there, here)
    for end in ("src-uri", "dest-uri"):
        definition[end] = [lab_dead_uri, definition[end]]
    running(agent_of(here.node), here, definition)
    there.publish(numbered(10), "src", exchange="")
    assert here.take(10, queue="dest") == numbered(10)


def test_a_foreign_user_id_is_cleared_and_ones_own_is_kept(agent_of: AgentOf, here: Site, there: Site) -> None:
    """The destination would refuse it, and with it all that follows."""
    admin = there.node.admin
    admin.user("stranger", "pw", "administrator")
    admin.permissions(there.vhost, "stranger")
    there.queue(name="src")
    publish_as(there, "stranger", "pw")
    publish_as(there, "guest", "guest")
    running(agent_of(here.node), here, shovel(there, here))
    assert [each.user_id for each in messages(here.uri, "dest", 2)] == [None, "guest"]


def publish_as(site: Site, user: str, password: str) -> None:
    async def publish() -> None:
        async with await aio_pika.connect(site.node.uri(site.vhost, user, password)) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.default_exchange.publish(aio_pika.Message(user.encode(), user_id=user), "src")

    asyncio.run(publish())


@pytest.mark.versions
def test_on_another_release(agent_of: AgentOf, broker_on: Callable[..., Node], site_on: SiteOn, here: Site) -> None:
    """From there in two modes; and exactly so many of a quorum queue. Brokers from 4.0 on close the connection instead
    of answering that a queue of so long a name is missing, so it is declared at once."""
    there = site_on(broker_on("sid"))
    defined = {}
    for mode in ("on-confirm", "no-ack"):
        there.queue(name=mode).publish(numbered(500), mode, exchange="")
        keys: dict[str, Any] = {"ack_mode": mode, "dest_add_forward_headers": True}
        defined[mode] = shovel(there, here, src_queue=mode, dest_queue=mode, **keys)
    there.node.admin.queue(there.vhost, "quorum", arguments={"x-queue-type": "quorum"})
    there.publish(numbered(500), "quorum", exchange="")
    defined["quorum"] = shovel(there, here, src_queue="quorum", dest_queue="quorum", src_delete_after=300)
    long = "src" + "ž" * 120, "dest" + "ž" * 120
    defined["long"] = shovel(there, there, src_queue=long[0], dest_queue=long[1])
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_for("terminated", named(here, "quorum"))
    agent.wait_for("running", *(named(here, name) for name in defined.keys() - {"quorum"}))
    for mode in ("on-confirm", "no-ack"):
        assert here.take(500, queue=mode) == numbered(500)
    assert here.take(300, queue="quorum") == numbered(300)
    assert there.take(200, queue="quorum") == numbered(200, start=300)
    assert {*long} <= {each["name"] for each in there.node.admin.get("queues", there.vhost)}
