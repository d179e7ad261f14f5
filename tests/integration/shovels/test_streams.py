"""Streams as sources and destinations: each shovel goes on where it was, whatever is cut or killed meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, upstreams
from tests.integration.queue_links.scene import User
from tests.integration.shovels.shoveling import (
    SHOVEL,
    ProxyTo,
    ask,
    links_of,
    named,
    running,
    shovel,
    shovels,
    wait_error,
)
from tests.lab.admin import AdminError
from tests.lab.node import Node
from tests.lab.user_program import BATCH, depth, messages, numbered, times
from tests.lab.waiting import DEADLINE, eventually

COUNT: Final = 6_000
PREFETCH: Final = 100
CUTS: Final = 4
KILLS: Final = 2
SLOWLY: Final = 60_000  # bytes in a second, so that all that is cut or killed is midway
RELEASES: Final = [None, pytest.param("sid", marks=pytest.mark.versions)]


@pytest.fixture(params=RELEASES)
def stream_site(
    request: pytest.FixtureRequest, site_on: SiteOn, broker_on: Callable[..., Node], second_broker: Node
) -> Site:
    """A site with the stream `src`, on either release."""
    site = site_on(second_broker if request.param is None else broker_on(request.param))
    declare_stream(site)
    return site


def declare_stream(site: Site, name: str = "src", **arguments: object) -> None:
    written = {key.replace("_", "-"): value for key, value in arguments.items()}
    site.node.admin.queue(site.vhost, name, arguments={"x-queue-type": "stream", **written})


def copying(source: Site, destination: Site, offset: object = "first", **keys: Any) -> dict[str, Any]:
    consumer = {"src_consumer_args": {"x-stream-offset": offset}}
    return shovel(source, destination, reconnect_delay=0.2, src_prefetch_count=PREFETCH, **consumer, **keys)


def offset_queue(here: Site) -> str:
    return f"federation-agent: offset of {here.vhost}/{SHOVEL} -> {here.node.cluster_name}"


def remembered(there: Site, here: Site) -> int | None:
    """The offset that the queue beside the stream has; None if there is no such queue, or nothing in it."""
    asked = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    try:
        found = there.node.admin.post("queues", there.vhost, offset_queue(here), "get", body=asked)
    except AdminError:
        return None
    return int(json.loads(found[0]["payload"])["offset"]) if found else None


def forwarded(agent: Agent) -> int:
    """Since the agent was started, which may be a moment ago."""
    [link] = eventually(lambda: ask(agent, "/api/links"), DEADLINE, what="the agent answers", ignoring=OSError)
    return int(link["forwarded"])


def went_back(bodies: list[str]) -> Iterator[tuple[int, int]]:
    """Where what came doesn't follow what came before: from which number back to which."""
    last = -1
    for number in map(int, bodies):
        assert number <= last + 1, f"{last + 1} to {number - 1} are lost, or come later"
        if number != last + 1:
            yield last, number
        last = number


def wait_depth(site: Site, least: int, deadline: float = DEADLINE) -> None:
    eventually(lambda: depth(site.uri, "dest") >= least, deadline, what=f"{least} messages came")


def test_nothing_is_lost_and_what_was_remembered_never_comes_again(
    agent_of: AgentOf, here: Site, stream_site: Site, proxy_to: ProxyTo
) -> None:
    """With connections cut, and the agent killed: it is started again, or another of its group goes on."""
    there = stream_site
    there.publish(numbered(COUNT), "src", exchange="")
    proxy = proxy_to(there.node)
    proxy.throttle(SLOWLY)
    definition = copying(there, here) | {"src-uri": there.node.uri(there.vhost, port=proxy.port)}
    agent = running(agent_of(here.node), here, definition)
    kept: list[int] = []
    for step in range(CUTS + KILLS):
        before = forwarded(agent)
        eventually(lambda before=before, agent=agent: forwarded(agent) > before + PREFETCH, what="it goes on")  # type: ignore[misc]
        if step % 3 != 2:
            proxy.cut()
            continue
        eventually(lambda: remembered(there, here) is not None, what="a place is remembered")
        successor = agent
        if step == CUTS + KILLS - 1:
            successor = agent_of(here.node).write({here.vhost: shovels(definition)}).start()
            successor.wait_logged("configuration read")
        agent.kill()
        kept.append(eventually(lambda: (remembered(there, here) or -1) + 1, what="the place can be read") - 1)
        if successor is agent:
            agent.start()
        else:
            successor.wait_for("running", named(here))
        agent = successor
    assert depth(here.uri, "dest") < COUNT, "all of it happened while messages flowed"
    proxy.throttle(None)
    eventually(lambda: remembered(there, here) == COUNT - 1, what="the last one is remembered")
    came = here.take(COUNT, queue="dest")
    assert set(came) == set(numbered(COUNT))
    backward = [(last, number) for last, number in went_back(came) if number - 1 not in kept]
    # A broker of 3.10 sends all of the chunk that a consumer begins in, whatever the prefetch.
    assert all(last - number < PREFETCH + BATCH for last, number in backward), backward
    last, number = [(-1, 0), *went_back(came)][-1]  # that of the last kill, or nothing was on its way then
    assert number == kept[-1] + 1 or last < kept[-1], (last, number, kept)
    assert came[-1] == numbered(COUNT)[-1]


def test_an_agent_that_is_stopped_and_its_successor_copy_each_message_once(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    declare_stream(there)
    there.publish(numbered(1_500), "src", exchange="")
    first = running(agent_of(here.node), here, copying(there, here))
    wait_depth(here, 100)
    assert first.terminate() == 0
    there.publish(numbered(500, start=1_500), "src", exchange="")
    second = running(agent_of(here.node), here, copying(there, here))
    wait_depth(here, 2_000)
    [link] = ask(second, "/api/links")
    ask(second, f"/api/links/{link['id']}/restart", "POST")
    there.publish(numbered(100, start=2_000), "src", exchange="")
    assert here.take(2_100, queue="dest") == numbered(2_100)


FULL: Final = {"max-length": 10, "overflow": "reject-publish"}


def test_what_is_copied(agent_of: AgentOf, here: Site, stream_site: Site) -> None:
    """Each message as it was published; from where the first run begins; into a stream and out of it. What a
    destination refuses is published again from memory, as a stream takes nothing back. A queue link takes nothing from
    one, and says so."""
    there = stream_site
    for name in ("numbers", "into"):
        declare_stream(there, name)
    there.publish(numbered(100), "numbers", exchange="")
    there.publish(["none"], "src", exchange="")
    there.publish(["some"], "src", exchange="", headers={"a": "b", "z": 1})
    there.publish(["forged"], "src", exchange="", headers={"x-stream-offset": 17, "z": "\x0fx-stream-offsetl12345678"})
    here.queue(name="from").publish(numbered(500), "from", exchange="")
    here.queue(name="src").node.admin.policy(here.vhost, "full", "^full$", definition=FULL, apply_to="queues")
    stream: dict[str, Any] = {"dest_queue_args": {"x-queue-type": "stream"}}
    defined = {
        SHOVEL: copying(there, here),
        "into": shovel(here, there, src_queue="from", dest_queue="into", **stream),
        "back": copying(there, here, src_queue="into", dest_queue="back"),
        "full": copying(there, here, src_queue="numbers", dest_queue="full"),
    }
    offsets: tuple[object, ...] = ("next", 90, "last")
    defined |= {str(each): copying(there, here, each, src_queue="numbers", dest_queue=str(each)) for each in offsets}
    policy = {"pattern": "^src$", "apply-to": "queues", "definition": {"federation-upstream-set": "all"}}
    sections = {"shovels": defined, "upstreams": upstreams(there), "policies": {"federate": policy}}
    agent = agent_of(here.node).write({here.vhost: sections}).start()
    agent.wait_for("running", *(named(here, name) for name in defined))

    came = messages(here.uri, "dest", 3)
    assert [(each.body.decode(), each.headers) for each in came] == [
        ("none", {}),
        ("some", {"a": "b", "z": 1}),
        ("forged", {"z": "\x0fx-stream-offsetl12345678"}),
    ]
    there.publish(numbered(10, start=100), "numbers", exchange="")
    assert here.take(10, queue="next") == numbered(10, start=100)
    assert here.take(20, queue="90") == numbered(20, start=90)
    last = here.take(11, queue="last")  # the last chunk, which the broker makes as it likes
    assert last == numbered(110)[-len(last) :] and len(last) > 10
    assert here.take(500, queue="back") == numbered(500)
    assert depth(here.uri, "from") == 0

    eventually(lambda: "refused by the destination" in str(links_of(agent)["full"]["error"]), what="some are refused")
    here.node.admin.delete("policies", here.vhost, "full")
    found = here.take(110, queue="full")
    assert set(found) == set(numbered(110)) and len(found) < 110 + PREFETCH // 2
    assert agent.history(*named(here, "full")).count("backoff") == 0

    link = (here.vhost, "src", "origin")
    with User(here, "src"):
        agent.wait_for("invalid", link)
    assert "'src' is a stream" in agent.links()[link]["error"] and "by a shovel" in agent.links()[link]["error"]


def test_a_stream_that_was_deleted_and_declared_again(agent_of: AgentOf, here: Site, stream_site: Site) -> None:
    """While the agent runs it knows; a shorter one that it finds later waits for an operator."""
    there = stream_site
    there.publish(numbered(500), "src", exchange="")
    definition = copying(there, here, src_queue_args={"x-queue-type": "stream"})
    agent = running(agent_of(here.node), here, definition)
    wait_depth(here, 500)
    eventually(lambda: remembered(there, here) == 499, what="all is remembered")
    there.delete_queue("src")
    eventually(lambda: agent.history(here.vhost, SHOVEL, "").count("running") == 2, DEADLINE, what="it began again")
    there.publish(numbered(50, start=500), "src", exchange="")
    assert here.take(550, queue="dest") == numbered(550)
    eventually(lambda: remembered(there, here) == 49, what="the new stream's place is remembered")
    assert agent.terminate() == 0
    there.delete_queue("src")
    declare_stream(there)
    there.publish(numbered(20, start=600), "src", exchange="")
    agent.start()
    wait_error(agent, here, "ends before offset 49", offset_queue(here), "deleted and declared again")
    there.publish(numbered(80, start=620), "src", exchange="")
    time.sleep(2)  # the stream is longer than the former one was, and the shovel tries again every 0.2 s
    wait_error(agent, here, "ends before offset 49")
    assert depth(here.uri, "dest") == 0
    [link] = ask(agent, "/api/links")
    ask(agent, f"/api/links/{link['id']}/pause", "POST")
    agent.wait_for("paused", named(here))
    there.delete_queue(offset_queue(here))
    ask(agent, f"/api/links/{link['id']}/resume", "POST")
    assert here.take(100, queue="dest") == numbered(100, start=600)


def test_what_the_stream_has_dropped_is_noted(agent_of: AgentOf, here: Site, there: Site) -> None:
    declare_stream(there, x_max_length_bytes=200_000, x_stream_max_segment_size_bytes=50_000)
    there.publish(numbered(10), "src", exchange="")
    agent = running(agent_of(here.node), here, copying(there, here))
    eventually(lambda: remembered(there, here) == 9, what="all is remembered")
    assert agent.terminate() == 0
    for start in range(10, 2_010, 200):
        there.publish([f"{body}{'x' * 1_000}" for body in numbered(200, start=start)], "src", exchange="")
    agent.start()
    agent.wait_for("running", named(here))
    eventually(lambda: "had dropped up to" in (ask(agent, "/api/links")[0]["error"] or ""), what="it is noted")
    assert agent.logged("messages were dropped before they were copied")
    wait_depth(here, 100)
    came = here.take(100, queue="dest")
    assert came[:10] == numbered(10) and came[-1].startswith("002009")


@pytest.mark.thorough
def test_what_is_refused_and_too_large_to_keep_is_not_read_again_forever(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """Each time, what another destination takes would be copied there again."""
    declare_stream(there)
    there.exchange("x", "direct").bind("full", name="src", exchange="x").bind("free", name="src", exchange="x")
    here.exchange("x", "direct").queue("free", name="free", exchange="x").queue("full", name="full", exchange="x")
    full = {"max-length": 1, "overflow": "reject-publish"}
    here.node.admin.policy(here.vhost, "full", "^full$", definition=full)
    here.publish(["first"], "full", exchange="x")
    bodies = [body + "x" * 1_000_000 for body in numbered(40)]
    for body in bodies:
        there.publish([body], "full", exchange="x")
        there.publish([body], "free", exchange="x")
    agent = running(agent_of(here.node), here, copying(there, here, dest_exchange="x"))
    eventually(lambda: "refused by the destination" in (ask(agent, "/api/links")[0]["error"] or ""), DEADLINE)
    before = 0
    while before != (count := agent.history(here.vhost, SHOVEL, "").count("backoff")) or not count:
        assert count < 6, "200 messages are read ahead, then 50, 12, 3, 1"
        before = count
        time.sleep(8)  # a session that fails is followed by another within 0.2 s, and takes 2
    here.node.admin.delete("policies", here.vhost, "full")
    assert times(here.take(41, queue="full", deadline=DEADLINE)).keys() == {"first", *bodies}
    copied = times(here.take(40, queue="free", deadline=DEADLINE))
    assert copied.keys() == set(bodies) and max(copied.values()) <= 5


def test_without_permission_to_remember_it_copies_and_says_so(
    agent_of: AgentOf, here: Site, there: Site, name: Callable[[str], str]
) -> None:
    user = name("copier")
    there.node.admin.user(user, "p")
    there.node.admin.permissions(there.vhost, user, configure="^$", write="^$", read="^(src|federation-agent: .*)$")
    declare_stream(there)
    there.publish(numbered(10), "src", exchange="")
    definition = copying(there, here) | {"src-uri": there.node.uri(there.vhost, user, "p")}
    agent = running(agent_of(here.node), here, definition)
    assert here.take(10, queue="dest") == numbered(10)
    [link] = ask(agent, "/api/links")
    assert "can't be remembered" in link["error"] and offset_queue(here) in link["error"], link["error"]
    [link] = ask(agent, "/api/links")
    ask(agent, f"/api/links/{link['id']}/restart", "POST")
    there.publish(numbered(5, start=10), "src", exchange="")
    assert here.take(5, queue="dest") == numbered(5, start=10), "it is known while the agent runs"
    granted = "^federation-agent: offset of "
    there.node.admin.permissions(
        there.vhost, user, configure=granted, write="^amq\\.default$", read=f"(^src$)|{granted}"
    )
    eventually(lambda: not ask(agent, "/api/links")[0]["error"], DEADLINE, what="it is remembered, and noted no more")
    eventually(lambda: remembered(there, here) == 14, what="the place")
    there.node.admin.delete("users", user)


def test_a_place_that_may_not_be_read_is_neither_guessed_nor_overwritten(
    agent_of: AgentOf, here: Site, stream_site: Site, name: Callable[[str], str]
) -> None:
    there = stream_site
    user, granted = name("copier"), "^(src|amq\\.default|federation-agent: .*)$"
    there.node.admin.user(user, "p")
    there.node.admin.permissions(there.vhost, user, configure=granted, write=granted, read=granted)
    there.publish(numbered(10), "src", exchange="")
    definition = copying(there, here, "next") | {"src-uri": there.node.uri(there.vhost, user, "p")}
    agent = running(agent_of(here.node), here, definition)
    there.publish(numbered(10, start=10), "src", exchange="")
    eventually(lambda: remembered(there, here) == 19, DEADLINE, what="all is remembered")
    assert agent.terminate() == 0
    there.publish(numbered(10, start=20), "src", exchange="")
    there.node.admin.permissions(there.vhost, user, configure=granted, write=granted, read="^src$")
    agent.start()
    agent.wait_for("invalid", named(here))
    assert offset_queue(here) in ask(agent, "/api/links")[0]["error"]
    assert remembered(there, here) == 19
    there.node.admin.permissions(there.vhost, user, configure=granted, write=granted, read=granted)
    [link] = ask(agent, "/api/links")
    ask(agent, f"/api/links/{link['id']}/restart", "POST")
    assert here.take(20, queue="dest") == numbered(20, start=10)
    there.node.admin.delete("users", user)
