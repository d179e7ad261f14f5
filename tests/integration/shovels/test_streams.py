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
from tests.integration.shovels.shoveling import SHOVEL, ask, named, running, shovel, shovels, wait_error
from tests.lab.admin import AdminError
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import BATCH, depth, messages, numbered, times
from tests.lab.waiting import DEADLINE, eventually

COUNT: Final = 20_000
PREFETCH: Final = 200
CUTS: Final = 8
KILLS: Final = 3
SLOWLY: Final = 150_000  # bytes in a second, so that all that is cut or killed is midway
RELEASES: Final = [None, pytest.param("sid", marks=pytest.mark.versions)]

ProxyTo = Callable[[Node | int], Proxy]


@pytest.fixture(params=RELEASES)
def stream_site(
    request: pytest.FixtureRequest, site_on: SiteOn, broker_on: Callable[..., Node], second_broker: Node
) -> Site:
    """A site with the stream `src`, on either release."""
    site = site_on(second_broker if request.param is None else broker_on(request.param))
    declare_stream(site)
    return site


def declare_stream(site: Site, **arguments: object) -> None:
    written = {name.replace("_", "-"): value for name, value in arguments.items()}
    site.node.admin.queue(site.vhost, "src", arguments={"x-queue-type": "stream", **written})


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
    """With connections cut, and the agent killed."""
    there = stream_site
    there.publish(numbered(COUNT), "src", exchange="")
    proxy = proxy_to(there.node)
    proxy.throttle(SLOWLY)
    definition = copying(there, here) | {"src-uri": there.node.uri(there.vhost, port=proxy.port)}
    agent = running(agent_of(here.node), here, definition)
    kept: list[int] = []
    for step in range(CUTS + KILLS):
        before = forwarded(agent)
        eventually(lambda before=before: forwarded(agent) > before + PREFETCH, DEADLINE, what="it goes on")  # type: ignore[misc]
        if step % 4 != 3:
            proxy.cut()
            continue
        eventually(lambda: remembered(there, here) is not None, DEADLINE, what="a place is remembered")
        agent.kill()
        kept.append(eventually(lambda: (remembered(there, here) or -1) + 1, DEADLINE, what="the place can be read") - 1)
        agent.start()
    assert depth(here.uri, "dest") < COUNT, "all of it happened while messages flowed"
    proxy.throttle(None)
    wait_depth(here, COUNT)
    eventually(lambda: remembered(there, here) == COUNT - 1, DEADLINE, what="the last one is remembered")
    came = here.take(COUNT, queue="dest")
    assert set(came) == set(numbered(COUNT))
    backward = [(last, number) for last, number in went_back(came) if number - 1 not in kept]
    # A broker of 3.10 sends all of the chunk that a consumer begins in, whatever the prefetch.
    assert all(last - number < PREFETCH + BATCH for last, number in backward), backward
    assert came[-1] == numbered(COUNT)[-1]


def test_an_agent_that_is_stopped_and_its_successor_copy_each_message_once(
    agent_of: AgentOf, here: Site, stream_site: Site
) -> None:
    there = stream_site
    there.publish(numbered(3_000), "src", exchange="")
    first = running(agent_of(here.node), here, copying(there, here))
    wait_depth(here, 100)
    assert first.terminate() == 0
    there.publish(numbered(1_000, start=3_000), "src", exchange="")
    second = running(agent_of(here.node), here, copying(there, here))
    wait_depth(here, 4_000)
    [link] = ask(second, "/api/links")
    ask(second, f"/api/links/{link['id']}/restart", "POST")
    there.publish(numbered(100, start=4_000), "src", exchange="")
    assert here.take(4_100, queue="dest") == numbered(4_100)


def test_another_agent_of_the_group_goes_on_where_the_killed_one_was(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    declare_stream(there)
    there.publish(numbered(5_000), "src", exchange="")
    proxy = proxy_to(there.node)
    proxy.throttle(SLOWLY)
    definition = copying(there, here) | {"src-uri": there.node.uri(there.vhost, port=proxy.port)}
    agents = [agent_of(here.node).write({here.vhost: shovels(definition)}).start() for _ in range(2)]

    def one_that_runs_it() -> Agent | None:
        states = [(each, each.links().get(named(here), {}).get("status")) for each in agents]
        return next((each for each, status in states if status == "running"), None)

    first = eventually(one_that_runs_it, DEADLINE, what="one of them runs it")
    assert first is not None
    eventually(lambda: remembered(there, here) is not None, DEADLINE, what="a place is remembered")
    first.kill()
    kept = eventually(lambda: (remembered(there, here) or -1) + 1, DEADLINE, what="the place can be read")
    agents.remove(first)
    proxy.throttle(None)
    wait_depth(here, 5_000)
    came = here.take(5_000, queue="dest")
    assert set(came) == set(numbered(5_000))
    assert {number for _, number in went_back(came)} <= {kept}


def test_each_message_is_as_it_was_published(agent_of: AgentOf, here: Site, stream_site: Site) -> None:
    there = stream_site
    there.publish(["none"], "src", exchange="")
    there.publish(["some"], "src", exchange="", headers={"a": "b", "z": 1})
    there.publish(["forged"], "src", exchange="", headers={"x-stream-offset": 17, "z": "\x0fx-stream-offsetl12345678"})
    running(agent_of(here.node), here, copying(there, here))
    came = messages(here.uri, "dest", 3)
    assert [each.body.decode() for each in came] == ["none", "some", "forged"]
    assert [each.headers for each in came] == [
        {},
        {"a": "b", "z": 1},
        {"z": "\x0fx-stream-offsetl12345678"},
    ]


@pytest.mark.parametrize(
    ("offset", "expected"), [("next", numbered(10, start=100)), (90, numbered(20, start=90)), ("last", None)]
)
def test_where_the_first_run_begins(
    agent_of: AgentOf, here: Site, there: Site, offset: object, expected: list[str] | None
) -> None:
    declare_stream(there)
    there.publish(numbered(100), "src", exchange="")
    running(agent_of(here.node), here, copying(there, here, offset))
    there.publish(numbered(10, start=100), "src", exchange="")
    wait_depth(here, 10)
    came = here.take(len(expected or numbered(11)), queue="dest")
    if expected is None:  # the last chunk, which the broker makes as it likes
        assert came == numbered(110)[-len(came) :] and len(came) > 10
    else:
        assert came == expected


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


def test_what_the_stream_has_dropped_is_noted(agent_of: AgentOf, here: Site, stream_site: Site) -> None:
    there = stream_site
    there.delete_queue("src")
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


def test_what_the_destination_refuses_is_copied_later(agent_of: AgentOf, here: Site, stream_site: Site) -> None:
    """A stream takes nothing back, so what is refused is published again from memory."""
    there = stream_site
    full = {"x-max-length": 100, "x-overflow": "reject-publish"}
    here.node.admin.queue(here.vhost, "dest", arguments=full)
    there.publish(numbered(1_000), "src", exchange="")
    agent = running(agent_of(here.node), here, copying(there, here))
    eventually(lambda: "refused by the destination" in (ask(agent, "/api/links")[0]["error"] or ""), DEADLINE)
    came: list[str] = []
    while len(set(came)) < 1_000:
        found = here.take(1, queue="dest")  # and what comes with it
        assert found, f"only {len(set(came))} came"
        came += found
    assert set(came) == set(numbered(1_000)) and len(came) < 1_000 + 2 * PREFETCH
    assert agent.history(here.vhost, SHOVEL, "").count("backoff") == 0


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


def test_a_queue_link_takes_nothing_from_a_stream_and_says_so(agent_of: AgentOf, here: Site, stream_site: Site) -> None:
    there = stream_site
    here.queue(name="src").publish([], "src", exchange="")
    policy = {"pattern": "^src$", "apply-to": "queues", "definition": {"federation-upstream-set": "all"}}
    sections = {"upstreams": upstreams(there), "policies": {"federate": policy}}
    agent = agent_of(here.node).write({here.vhost: sections}).start()
    here.take(1, queue="src", deadline=3)  # a consumer asks for messages
    link = (here.vhost, "src", "origin")
    agent.wait_for("invalid", link)
    assert "'src' is a stream" in agent.links()[link]["error"] and "by a shovel" in agent.links()[link]["error"]


def test_a_stream_as_the_destination(agent_of: AgentOf, here: Site, stream_site: Site) -> None:
    there = stream_site
    here.queue(name="from").publish(numbered(1_000), "from", exchange="")
    definition = shovel(here, there, src_queue="from", dest_queue="src", dest_queue_args={"x-queue-type": "stream"})
    agent = running(agent_of(here.node), here, definition)
    eventually(lambda: depth(here.uri, "from") == 0, DEADLINE, what="all is copied")
    assert agent.terminate() == 0
    running(agent, here, copying(there, here))
    assert here.take(1_000, queue="dest") == numbered(1_000)
