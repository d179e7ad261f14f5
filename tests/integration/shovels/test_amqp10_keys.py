"""What the keys of a shovel do where its ends speak AMQP 1.0: the cases of the plugin's own suites."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, running, shovels, wait_error
from tests.integration.shovels.test_amqp10 import KINDS, Amqp10, ends, sites
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import eventually
from tests.tiers import thorough

FORWARDED: Final = {"dest-add-forward-headers": True, "dest-add-timestamp-header": True}
TEXTS: Final = {"x-opt-shovelled-by", "x-opt-shovel-type", "x-opt-shovel-name"}


def furnished(kind: str, ten: Amqp10, here: Site) -> tuple[Site, Site]:
    """The source and the destination, with their queues."""
    source, destination = sites(kind, ten, here)
    source.queue(name="src")
    destination.queue(name="dest")
    return source, destination


@pytest.mark.parametrize("ack_mode", ["on-publish", "no-ack"])
@pytest.mark.parametrize("kind", ["both", thorough("from"), thorough("to")])
def test_ack_modes(agent_of: AgentOf, here: Site, ten: Amqp10, kind: str, ack_mode: str) -> None:
    """`on-confirm` is the default elsewhere."""
    source, destination = furnished(kind, ten, here)
    source.publish(waiting := numbered(500), "src", exchange="")
    agent = running(agent_of(here.node), here, ends(kind, ten, here) | {"ack-mode": ack_mode})
    source.publish(later := numbered(2_000, start=500), "src", exchange="")
    assert destination.take(2_500, queue="dest") == waiting + later
    eventually(lambda: ask(agent, "/api/links")[0]["in_flight"] == 0, what="nothing is open")
    assert agent.terminate() == 0
    assert depth(source.uri, "src") == 0


@pytest.mark.parametrize("ack_mode", ["on-confirm", thorough("on-publish")])
@pytest.mark.parametrize("kind", ["both", thorough("from"), thorough("to")])
def test_a_number_of_messages_and_no_more(agent_of: AgentOf, here: Site, ten: Amqp10, kind: str, ack_mode: str) -> None:
    """What is taken and not forwarded goes back; none at all with 0, and `never` ends nothing."""
    source, destination = furnished(kind, ten, here)
    source.publish(numbered(300), "src", exchange="")
    definition = ends(kind, ten, here) | {"ack-mode": ack_mode}
    counts = {"none": 0, "some": 100, "never": "never"}
    agent = agent_of(here.node).write({here.vhost: shovels(definition | {"src-delete-after": counts["none"]})}).start()
    agent.wait_for("terminated", named(here))
    assert depth(source.uri, "src") == 300
    agent.write({here.vhost: shovels(definition | {"src-delete-after": counts["some"]}, "some")})
    agent.wait_for("terminated", named(here, "some"))
    assert destination.take(100, queue="dest") == numbered(100)
    eventually(lambda: depth(source.uri, "src") == 200, what="the others are back")
    agent.write({here.vhost: shovels(definition | {"src-delete-after": counts["never"]}, "never")})
    assert destination.take(200, queue="dest") == numbered(200, start=100)
    assert agent.links()[named(here, "never")]["status"] == "running"


@pytest.mark.thorough
def test_after_a_time(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    furnished("both", ten, here)
    definition = ends("both", ten, here) | {"src-delete-after": "never", "src-delete-after-duration": 10}
    agent = agent_of(here.node).write({here.vhost: shovels(definition)}).start()
    agent.wait_for("running", named(here))
    since = time.monotonic()
    ten.site.publish(numbered(10), "src", exchange="")
    assert ten.site.take(10, queue="dest") == numbered(10)
    agent.wait_for("terminated", named(here))
    assert time.monotonic() - since > 3
    ten.site.publish(numbered(10), "src", exchange="")
    assert depth(ten.site.uri, "src") == 10


@pytest.mark.parametrize("kind", ["both", thorough("from")])
def test_no_more_than_the_prefetch_is_taken(agent_of: AgentOf, here: Site, ten: Amqp10, kind: str) -> None:
    source, destination = furnished(kind, ten, here)
    agent = running(agent_of(here.node), here, ends(kind, ten, here) | {"src-prefetch-count": 7})
    source.publish(numbered(2_000), "src", exchange="")
    assert destination.take(2_000, queue="dest") == numbered(2_000)
    [link] = ask(agent, "/api/links")
    assert link["in_flight"] <= 7
    assert link["prefetch"] == 7


@pytest.mark.parametrize("kind", ["both", "to"])
def test_forward_and_timestamp_annotations(agent_of: AgentOf, here: Site, ten: Amqp10, kind: str) -> None:
    """As the plugin of 4.3 writes them. What is there already stays; keys that it ignores change nothing."""
    source, _ = furnished(kind, ten, here)
    ignored = {
        "dest-properties": {"user_id": "guest"},
        "dest-application-properties": {"added": "x"},
        "dest-message-annotations": {"x-added": "x"},
    }
    running(agent_of(here.node), here, ends(kind, ten, here) | FORWARDED | ignored)
    if kind == "to":
        source.publish(["m"], "src", exchange="", headers={"mine": "yes"})
    else:  # 3.10 loses headers, from 0-9-1 to 1.0
        sent = {"body": "m", "properties": {"mine": "yes"}}
        with ten.user() as user:
            user.send("src", sent)
    with ten.user() as user:
        [found] = user.take("dest", 1)
    annotations, cluster = found["annotations"], here.node.admin.get("cluster-name")["name"]
    assert {name: annotations[name] for name in TEXTS} == {
        "x-opt-shovelled-by": cluster,
        "x-opt-shovel-type": "dynamic",
        "x-opt-shovel-name": "drain",
    }
    assert abs(annotations["x-opt-shovelled-timestamp"] / 1_000 - time.time()) < 60
    assert found["properties"] == {"mine": "yes"}
    assert "x-added" not in annotations
    assert found["body"] == "m"


def test_a_source_of_1_0_and_forward_headers(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    _, destination = furnished("from", ten, here)
    running(agent_of(here.node), here, ends("from", ten, here) | FORWARDED)
    sent = {"body": "m", "properties": {"mine": "yes", "number": 5}, "id": "1", "content_type": "text/plain"}
    with ten.user() as user:
        assert user.send("src", sent) == ["accepted"]
    [found] = messages(destination.uri, "dest", 1)
    headers: dict[str, Any] = {**found.headers}
    assert (headers["mine"], headers["number"]) == ("yes", 5)
    assert (found.body, found.message_id, found.content_type) == (b"m", "1", "text/plain")
    [entry] = headers["x-shovelled"]
    assert "guest" not in entry["src-uri"]
    assert entry["shovel-name"] == "drain"
    assert abs(int(headers["x-shovelled-timestamp"]) - time.time()) < 60


MESSAGES: Final[list[dict[str, Any]]] = [
    {"body": "data", "properties": {"text": "x", "number": 5, "yes": True, "none": None}, "durable": False},
    {"value": "text", "id": "1", "correlation_id": "2", "subject": "s", "reply_to": "r", "content_type": "text/plain"},
    {"value": [1, "two", None, {"three": 3}], "group_id": "g", "priority": 7, "annotations": {"x-opt-mine": "v"}},
    {"value": {"map": [1, 2]}, "id": 7, "properties": {"nothing": "else"}},
    {"body": "x" * 300_000},
    {"body": ""},
]


@pytest.mark.versions
def test_messages_arrive_as_they_were_sent(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    """From 1.0 to 1.0: every property, every kind of body."""
    furnished("both", core, here)
    running(agent_of(here.node), here, ends("both", core, here))
    with core.user() as user:
        assert user.send("src", *MESSAGES) == ["accepted"] * len(MESSAGES)
        came = user.take("dest", len(MESSAGES))
    for sent, found in zip(MESSAGES, came, strict=True):
        expected = {"durable": True} | {name: each for name, each in sent.items() if name != "annotations"}
        assert found.items() >= expected.items()
        assert found["annotations"].items() >= dict(sent.get("annotations", {})).items()
        assert found["delivery_count"] == 0


@pytest.mark.parametrize("kind", ["both", thorough("from"), thorough("to")])
def test_a_message_without_a_priority_gets_none(agent_of: AgentOf, here: Site, ten: Amqp10, kind: str) -> None:
    source, destination = furnished(kind, ten, here)
    running(agent_of(here.node), here, ends(kind, ten, here))
    source.publish(["a"], "src", exchange="")
    [came] = messages(destination.uri, "dest", 1)
    assert not came.priority  # which aio-pika shows as 0 if it isn't there


@pytest.mark.versions
@pytest.mark.parametrize("kind", ["from", "to"])
def test_rules_are_about_headers_of_0_9_1(agent_of: AgentOf, here: Site, core: Amqp10, kind: str) -> None:
    """Before what leaves is converted, and after what comes was; the plugin of 3.10 drops all headers."""
    source, destination = furnished(kind, core, here)
    rules = {"set-headers": {"x-team": "a"}, "remove-headers": ["secret*"]}
    running(agent_of(here.node), here, ends(kind, core, here) | rules)
    source.publish(["a"], "src", exchange="", headers={"secret-1": "s", "kept": 1})
    [came] = messages(destination.uri, "dest", 1)
    assert {name: came.headers.get(name) for name in ("x-team", "secret-1", "kept")} == {
        "x-team": "a", "secret-1": None, "kept": 1
    }  # fmt: skip


def test_a_rate_limit_holds_between_two_ends_of_1_0(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    """Of a burst, what a second allows at once, and the rest as the limit says."""
    source, destination = furnished("both", ten, here)
    running(agent_of(here.node), here, ends("both", ten, here) | {"rate-limit": {"messages": 100}})
    began = time.monotonic()
    source.publish(numbered(300), "src", exchange="")
    assert destination.take(300, queue="dest") == numbered(300)
    assert time.monotonic() - began >= 1.8


@pytest.mark.versions
@pytest.mark.parametrize(("offset", "first"), [("first", 0), (60, 60), thorough("next", 100)])
@pytest.mark.parametrize("kind", ["both", "from"])
def test_a_stream_from_an_offset(
    agent_of: AgentOf, here: Site, core: Amqp10, *, kind: str, offset: str | int, first: int
) -> None:
    """Its messages stay where they are."""
    source, destination = sites(kind, core, here)
    source.node.admin.queue(source.vhost, "src", arguments={"x-queue-type": "stream"})
    destination.queue(name="dest")
    source.publish(numbered(100), "src", exchange="")
    definition = ends(kind, core, here) | {"src-consumer-args": {"x-stream-offset": offset}, "src-prefetch-count": 50}
    running(agent_of(here.node), here, definition)
    source.publish(numbered(5_000, start=100), "src", exchange="")
    expected = numbered(5_100 - first, start=first)
    came = messages(destination.uri, "dest", len(expected))
    assert [each.body.decode() for each in came] == expected
    assert not any("x-stream-offset" in each.headers for each in came)


def test_another_destination(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    """A definition that changes, and one that is gone: what comes afterwards stays at the source."""
    site = ten.site.queue(name="src").queue(name="dest").queue(name="dest2")
    definition = ends("both", ten, here)
    agent = running(agent_of(here.node), here, definition)
    site.publish(numbered(10), "src", exchange="")
    assert site.take(10, queue="dest") == numbered(10)
    agent.write({here.vhost: shovels(definition | {"dest-address": ten.address("dest2")})})
    eventually(lambda: ask(agent, "/api/shovels")[0]["dest_address"] == ten.address("dest2"), what="it is in force")
    site.publish(numbered(10, start=10), "src", exchange="")
    assert site.take(10, queue="dest2") == numbered(10, start=10)
    agent.write({})
    eventually(lambda: ask(agent, "/api/links") == [], what="it is gone")
    site.publish(numbered(10), "src", exchange="")
    assert [depth(site.uri, each) for each in ("src", "dest", "dest2")] == [10, 0, 0]


def test_a_predeclared_queue_that_is_deleted(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    """It is waited for, at either end: RabbitMQ 3.10 doesn't show that of the destination."""
    furnished("both", ten, here)
    keys = {"src-predeclared": True, "dest-predeclared": True, "reconnect-delay": 1}
    agent = running(agent_of(here.node), here, ends("both", ten, here) | keys)
    for name in ("src", "dest") if ten.is_in_core else ("src",):
        ten.site.delete_queue(name)
        wait_error(agent, here, "shovel source" if name == "src" else "shovel destination", f"'{name}'")
        ten.site.queue(name=name)
        agent.wait_for("running", named(here))
        ten.site.publish(numbered(10), "src", exchange="")
        assert ten.site.take(10, queue="dest") == numbered(10)


@pytest.mark.versions
@pytest.mark.parametrize("kind", KINDS)
def test_queues_are_declared_at_the_start_and_once_they_are_deleted(
    agent_of: AgentOf, here: Site, core: Amqp10, kind: str
) -> None:
    source, destination = sites(kind, core, here)
    agent = running(agent_of(here.node), here, ends(kind, core, here) | {"reconnect-delay": 1})
    source.publish(numbered(10), "src", exchange="")
    assert destination.take(10, queue="dest") == numbered(10)
    for site, name in ((source, "src"), (destination, "dest")):
        before = runs(agent, here)
        site.delete_queue(name)
        if name == "dest":  # 0-9-1 notices only then
            source.publish(numbered(10), "src", exchange="")
        eventually(partial(runs_again, agent, here, before), what="it runs again")
        if name == "src":
            source.publish(numbered(10), "src", exchange="")
        assert destination.take(10, queue="dest") == numbered(10)


def runs(agent: Agent, here: Site) -> int:
    return agent.history(*named(here)).count("running")


def runs_again(agent: Agent, here: Site, before: int) -> bool:
    return runs(agent, here) > before


@pytest.fixture
def spare(ten: Amqp10) -> Iterator[Site]:
    """Another vhost of the same broker."""
    with ten.site.node.admin.temporary_vhost(f"{ten.site.vhost} b") as made:
        yield Site(ten.site.node, made)


def test_between_vhosts(agent_of: AgentOf, here: Site, ten: Amqp10, spare: Site) -> None:
    """One named as the plugin takes it, the other by the path."""
    ten.site.queue(name="src")
    spare.queue(name="dest")
    source = ten.end("src", "src") | {"src-uri": by_hostname(ten.site)}
    running(agent_of(here.node), here, source | Amqp10(spare, ten.is_in_core).end("dest", "dest"))
    ten.site.publish(numbered(10), "src", exchange="")
    assert spare.take(10, queue="dest") == numbered(10)


def by_hostname(site: Site, login: str = "guest:guest") -> str:
    hostname = quote(f"vhost:{site.vhost}", safe="")
    return f"amqp://{login}@127.0.0.1:{site.node.amqp_port}?hostname={hostname}"


@pytest.mark.parametrize("end", ["source", "destination"])
def test_a_user_that_may_not(agent_of: AgentOf, here: Site, ten: Amqp10, end: str) -> None:
    """A wrong password, no access to the vhost, and then no permission: each is named with its side."""
    furnished("both", ten, here)
    key, admin = ("src-uri" if end == "source" else "dest-uri"), ten.site.node.admin
    admin.user("bare", "pw", "")
    definition = ends("both", ten, here)
    wrong = definition | {key: by_hostname(ten.site, "bare:wrong")}
    bare = definition | {key: by_hostname(ten.site, "bare:pw")}
    agent = (
        agent_of(here.node)
        .write({here.vhost: {"shovels": {"wrong": wrong, "bare": bare, "drain": definition}}})
        .start()
    )
    agent.wait_for("running", named(here))
    agent.wait_for("invalid", named(here, "wrong"))
    assert f"shovel {end}" in error_of(agent, here, "wrong")
    assert "login refused for user 'bare'" in error_of(agent, here, "wrong")
    refused = "check that the vhost exists, and the user's access" if ten.is_in_core else "insufficient permissions"
    eventually(lambda: refused in error_of(agent, here, "bare"), what="the other is refused")
    assert f"shovel {end}" in error_of(agent, here, "bare")
    assert "running" not in agent.history(here.vhost, "bare", "")
    admin.permissions(ten.site.vhost, "bare", write="^$", read="^$")
    if end == "source" or ten.is_in_core:  # 3.10 refuses messages and not the link
        restart(agent, here, "bare")
        eventually(lambda: "ACCESS_REFUSED" in error_of(agent, here, "bare"), what="it is named")
    admin.permissions(ten.site.vhost, "bare")
    restart(agent, here, "bare")
    agent.wait_for("running", named(here, "bare"))


def restart(agent: Agent, here: Site, name: str) -> None:
    ask(agent, f"/api/shovels/vhost/{here.vhost}/{name}/restart", "DELETE")


def error_of(agent: Agent, here: Site, name: str) -> str:
    return str(agent.links().get(named(here, name), {}).get("error"))
