"""What the keys of a shovel do where its ends speak AMQP 1.0: the cases of the plugin's own suites."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, links_of, named, shovels, wait_error
from tests.integration.shovels.test_amqp10 import KINDS, Amqp10, ends, sites
from tests.lab.user_program import depth, messages, numbered
from tests.lab.waiting import eventually

MODES: Final = ("on-confirm", "on-publish", "no-ack")
FORWARDED: Final = {"dest-add-forward-headers": True, "dest-add-timestamp-header": True}
TEXTS: Final = {"x-opt-shovelled-by", "x-opt-shovel-type", "x-opt-shovel-name"}
FEW: Final = 7
RATE: Final = 20


def furnished(kind: str, ten: Amqp10, here: Site, *, src: str = "src", dest: str = "dest") -> tuple[Site, Site]:
    """The source and the destination, with their queues."""
    source, destination = sites(kind, ten, here)
    source.queue(name=src)
    destination.queue(name=dest)
    return source, destination


@pytest.fixture
def spare(ten: Amqp10) -> Iterator[Site]:
    """Another vhost of the same broker."""
    with ten.site.node.admin.temporary_vhost(f"{ten.site.vhost} b") as made:
        yield Site(ten.site.node, made)


def by_hostname(site: Site, login: str = "guest:guest") -> str:
    """An address as the plugin takes it."""
    hostname = quote(f"vhost:{site.vhost}", safe="")
    return f"amqp://{login}@127.0.0.1:{site.node.amqp_port}?hostname={hostname}"


def test_messages_pass(agent_of: AgentOf, here: Site, ten: Amqp10, spare: Site) -> None:
    """Between all ends in each mode, between vhosts, no more at once than the prefetch, and no faster than the limit.

    What waits comes first. A message without a priority gets none.
    """
    slash = "/1" if ten.is_in_core else ""  # the plugin ends names at a slash
    keys: dict[str, tuple[str, dict[str, Any]]]
    keys = {f"{kind} {mode}": (kind, {"ack-mode": mode}) for kind, mode in product(KINDS, MODES)}
    keys |= {f"few {kind}": (kind, {"src-prefetch-count": FEW}) for kind in ("both", "from")}
    keys["limited"] = ("both", {"rate-limit": {"messages": RATE}})
    waiting, later = numbered(50), numbered(100, start=50)
    defined, queues = {}, {}
    for name, (kind, own) in keys.items():
        src, dest = f"src {name}{slash}", f"dest {name}"
        source, destination = furnished(kind, ten, here, src=src, dest=dest)
        source.publish(waiting, src, exchange="")
        queues[name] = (source, src), (destination, dest)
        defined[name] = ends(kind, ten, here, src=src, dest=dest) | own
    ten.site.queue(name="across")
    spare.queue(name="across")
    of_spare = Amqp10(spare, ten.is_in_core)
    defined["across"] = ten.end("src", "across") | {"src-uri": by_hostname(ten.site)} | of_spare.end("dest", "across")
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_running(len(defined))

    began: dict[str, float] = {}
    for name, ((source, src), _) in queues.items():  # `limited` is the last, and what comes of it is taken first
        began[name] = time.monotonic()
        source.publish(later, src, exchange="")
        links = links_of(agent)
        in_flight = [links[f"few {kind}"]["in_flight"] for kind in ("both", "from")]
        # RabbitMQ 3 gives credit on top of what is on its way from a queue, and may send as much once more.
        assert max(in_flight) <= (FEW if ten.is_in_core else 2 * FEW), in_flight
    for name, (_, (destination, dest)) in reversed(queues.items()):
        came = messages(destination.uri, dest, 150)
        assert [each.body.decode() for each in came] == waiting + later, name
        assert not any(each.priority for each in came)  # which aio-pika shows as 0 if it isn't there
        if name == "limited":  # what a second allows at once, what was sent ahead, and the rest as the limit says
            assert time.monotonic() - began[name] >= 100 / RATE - 3
    assert [links_of(agent)[f"few {kind}"]["prefetch"] for kind in ("both", "from")] == [FEW] * 2
    ten.site.publish(numbered(10), "across", exchange="")
    assert spare.take(10, queue="across") == numbered(10)
    eventually(lambda: not any(link["in_flight"] for link in links_of(agent).values()), what="nothing is open")
    assert agent.terminate() == 0
    assert not any(depth(source.uri, src) for (source, src), _ in queues.values())


def test_a_number_of_messages_and_no_more(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    """What is taken and not forwarded goes back; none at all with 0, and `never` ends nothing. After a time, too."""
    each = {f"{kind} {mode}": (kind, mode) for kind, mode in product(KINDS, ("on-confirm", "on-publish"))}
    by_time = {
        "timed": ends("both", ten, here) | {"src-delete-after": "never", "src-delete-after-duration": 3},
        "later": ends("both", ten, here, src="src later", dest="dest later") | {"src-delete-after-duration": 3_600},
    }
    furnished("both", ten, here)
    furnished("both", ten, here, src="src later", dest="dest later")
    found: dict[str, tuple[Site, Site]] = {}
    for name, (kind, _) in each.items():
        found[name] = furnished(kind, ten, here, src=f"src {name}", dest=f"dest {name}")
        found[name][0].publish(numbered(300), f"src {name}", exchange="")
    for name in ("src", "src later"):
        ten.site.publish(numbered(10), name, exchange="")

    def moving(word: str, count: int | str) -> dict[str, Any]:
        return {
            f"{word} {name}": ends(kind, ten, here, src=f"src {name}", dest=f"dest {name}")
            | {"ack-mode": mode, "src-delete-after": count}
            for name, (kind, mode) in each.items()
        }

    def names(word: str) -> list[tuple[str, str, str]]:
        return [named(here, f"{word} {name}") for name in each]

    began = time.monotonic()
    agent = agent_of(here.node).write({here.vhost: {"shovels": moving("none", 0) | by_time}}).start()
    agent.wait_for("terminated", *names("none"))
    assert [depth(source.uri, f"src {name}") for name, (source, _) in found.items()] == [300] * len(each)
    agent.wait_for("terminated", named(here, "timed"))
    assert time.monotonic() - began >= 3
    ten.site.publish(numbered(10, start=10), "src", exchange="")
    eventually(lambda: depth(ten.site.uri, "src") >= 10, what="what was sent as it ended is back, and nothing is taken")
    assert depth(ten.site.uri, "src") + depth(ten.site.uri, "dest") == 20
    assert ten.site.take(10, queue="dest later") == numbered(10)
    assert links_of(agent)["later"]["status"] == "running"

    agent.write({here.vhost: {"shovels": moving("some", 100)}})
    agent.wait_for("terminated", *names("some"))
    for name, (source, destination) in found.items():
        assert destination.take(100, queue=f"dest {name}") == numbered(100)
        eventually(lambda name=name, source=source: depth(source.uri, f"src {name}") == 200, what="the others are back")  # type: ignore[misc]
    agent.write({here.vhost: {"shovels": moving("never", "never")}})
    for name, (_, destination) in found.items():
        assert destination.take(200, queue=f"dest {name}") == numbered(200, start=100)
    assert {link["status"] for link in links_of(agent).values()} == {"running"}


def test_forward_and_timestamp_headers(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    """As the plugin of 4.3 writes them: annotations where the destination speaks 1.0, else headers. What is there
    already stays; keys that it ignores change nothing."""
    ignored = {
        "dest-properties": {"user_id": "guest"},
        "dest-application-properties": {"added": "x"},
        "dest-message-annotations": {"x-added": "x"},
    }
    defined = {}
    for kind in KINDS:
        furnished(kind, ten, here, src=f"src.{kind}", dest=f"dest.{kind}")
        defined[kind] = ends(kind, ten, here, src=f"src.{kind}", dest=f"dest.{kind}") | FORWARDED
        defined[kind] |= ignored if kind != "from" else {}
    agent_of(here.node).write({here.vhost: {"shovels": defined}}).start().wait_running(len(defined))
    here.publish(["m"], "src.to", exchange="", headers={"mine": "yes"})
    with ten.user() as user:  # 3.10 loses headers, from 0-9-1 to 1.0
        assert user.send("src.both", {"body": "m", "properties": {"mine": "yes"}}) == ["accepted"]
        properties = {"mine": "yes", "number": 5}
        sent = {"body": "m", "properties": properties, "id": "1", "content_type": "text/plain"}
        assert user.send("src.from", sent) == ["accepted"]
        arrived = {kind: user.take(f"dest.{kind}", 1) for kind in ("both", "to")}
    cluster = here.node.admin.get("cluster-name")["name"]
    for kind, [found] in arrived.items():
        annotations = found["annotations"]
        assert {name: annotations[name] for name in TEXTS} == {
            "x-opt-shovelled-by": cluster,
            "x-opt-shovel-type": "dynamic",
            "x-opt-shovel-name": kind,
        }
        assert abs(annotations["x-opt-shovelled-timestamp"] / 1_000 - time.time()) < 60
        assert "x-added" not in annotations
        assert (found["properties"], found["body"]) == ({"mine": "yes"}, "m")
    [message] = messages(here.uri, "dest.from", 1)
    headers: dict[str, Any] = {**message.headers}
    assert (headers["mine"], headers["number"]) == ("yes", 5)
    assert (message.body, message.message_id, message.content_type) == (b"m", "1", "text/plain")
    [entry] = headers["x-shovelled"]
    assert "guest" not in entry["src-uri"]
    assert entry["shovel-name"] == "from"
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
    """From 1.0 to 1.0: every property, every kind of body. Elsewhere rules are about headers of 0-9-1: before what
    leaves is converted, and after what comes was; the plugin of 3.10 drops all headers."""
    rules = {"set-headers": {"x-team": "a"}, "remove-headers": ["secret*"]}
    defined = {}
    for kind in KINDS:
        furnished(kind, core, here, src=f"src.{kind}", dest=f"dest.{kind}")
        defined[kind] = ends(kind, core, here, src=f"src.{kind}", dest=f"dest.{kind}")
        defined[kind] |= rules if kind != "both" else {}
    agent_of(here.node).write({here.vhost: {"shovels": defined}}).start().wait_running(len(defined))
    with core.user() as user:
        assert user.send("src.both", *MESSAGES) == ["accepted"] * len(MESSAGES)
        came = user.take("dest.both", len(MESSAGES))
    for sent, found in zip(MESSAGES, came, strict=True):
        expected = {"durable": True} | {name: each for name, each in sent.items() if name != "annotations"}
        assert found.items() >= expected.items()
        assert found["annotations"].items() >= dict(sent.get("annotations", {})).items()
        assert found["delivery_count"] == 0
    for kind in ("from", "to"):
        source, destination = sites(kind, core, here)
        source.publish(["a"], f"src.{kind}", exchange="", headers={"secret-1": "s", "kept": 1})
        [message] = messages(destination.uri, f"dest.{kind}", 1)
        headers = {name: message.headers.get(name) for name in ("x-team", "secret-1", "kept")}
        assert headers == {"x-team": "a", "secret-1": None, "kept": 1}


@pytest.mark.versions
def test_a_stream_from_an_offset(agent_of: AgentOf, here: Site, core: Amqp10) -> None:
    """Its messages stay where they are."""
    source, count = core.site, 1_000
    source.node.admin.queue(source.vhost, "src", arguments={"x-queue-type": "stream"})
    source.publish(numbered(100), "src", exchange="")
    firsts: dict[int | str, int] = {"first": 0, 60: 60, "next": 100}
    defined = {}
    for kind, offset in product(("both", "from"), firsts):
        dest = f"{kind} {offset}"
        sites(kind, core, here)[1].queue(name=dest)
        own = {"src-consumer-args": {"x-stream-offset": offset}, "src-prefetch-count": 50}
        defined[dest] = ends(kind, core, here, dest=dest) | own
    agent_of(here.node).write({here.vhost: {"shovels": defined}}).start().wait_running(len(defined))
    source.publish(numbered(count, start=100), "src", exchange="")
    for kind, (offset, first) in product(("both", "from"), firsts.items()):
        expected = numbered(100 + count - first, start=first)
        came = messages(sites(kind, core, here)[1].uri, f"{kind} {offset}", len(expected))
        assert [each.body.decode() for each in came] == expected
        assert not any("x-stream-offset" in each.headers for each in came)


def test_queues_that_are_missing_or_deleted_and_another_destination(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    """They are waited for, at either end: RabbitMQ 3.10 doesn't show that of the destination. A definition may change,
    and when it is gone what comes afterwards stays at the source."""
    site = ten.site.queue(name="dest").queue(name="dest2")
    keys = {"src-predeclared": True, "dest-predeclared": True, "reconnect-delay": 1}
    definition = ends("both", ten, here) | keys
    agent = agent_of(here.node).write({here.vhost: shovels(definition)}).start()

    def passes(dest: str = "dest") -> None:
        site.publish(numbered(10), "src", exchange="")
        assert site.take(10, queue=dest) == numbered(10)

    wait_error(agent, here, "shovel source", f"attaching to {ten.address('src')!r}", "queue 'src'")
    site.queue(name="src")
    agent.wait_for("running", named(here))
    passes()
    for name, end in (("src", "source"), ("dest", "destination"))[: 2 if ten.is_in_core else 1]:
        site.delete_queue(name)
        wait_error(agent, here, f"shovel {end}", f"'{name}'")
        site.queue(name=name)
        agent.wait_for("running", named(here))
        passes()
    agent.write({here.vhost: shovels(definition | {"dest-address": ten.address("dest2")})})
    eventually(lambda: ask(agent, "/api/shovels")[0]["dest_address"] == ten.address("dest2"), what="it is in force")
    passes("dest2")
    agent.write({})
    eventually(lambda: ask(agent, "/api/links") == [], what="it is gone")
    site.publish(numbered(10), "src", exchange="")
    assert [depth(site.uri, each) for each in ("src", "dest", "dest2")] == [10, 0, 0]


@pytest.mark.versions
def test_queues_are_declared_at_the_start_and_once_they_are_deleted(
    agent_of: AgentOf, here: Site, core: Amqp10
) -> None:
    defined = {
        kind: ends(kind, core, here, src=f"src {kind}", dest=f"dest {kind}") | {"reconnect-delay": 1} for kind in KINDS
    }
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_running(len(defined))
    for kind in KINDS:
        source, destination = sites(kind, core, here)
        source.publish(numbered(10), f"src {kind}", exchange="")
        assert destination.take(10, queue=f"dest {kind}") == numbered(10)
        for end, site in (("src", source), ("dest", destination)):
            before = runs(agent, here, kind)
            site.delete_queue(f"{end} {kind}")
            if end == "dest":  # 0-9-1 notices only then
                source.publish(numbered(10), f"src {kind}", exchange="")
            eventually(partial(runs_again, agent, here, kind, before), what="it runs again")
            if end == "src":
                source.publish(numbered(10), f"src {kind}", exchange="")
            assert destination.take(10, queue=f"dest {kind}") == numbered(10)


def runs(agent: Agent, here: Site, name: str) -> int:
    return agent.history(*named(here, name)).count("running")


def runs_again(agent: Agent, here: Site, name: str, before: int) -> bool:
    return runs(agent, here, name) > before


def test_users_that_may_not(agent_of: AgentOf, here: Site, ten: Amqp10) -> None:
    """A wrong password, no access to the vhost, and then no permission: each is named with its side."""
    furnished("both", ten, here)
    admin = ten.site.node.admin
    admin.user("bare", "pw", "")
    definition, keys = ends("both", ten, here), {"source": "src-uri", "destination": "dest-uri"}
    defined = {"drain": definition}
    for end, key in keys.items():
        defined[f"wrong {end}"] = definition | {key: by_hostname(ten.site, "bare:wrong")}
        defined[f"bare {end}"] = definition | {key: by_hostname(ten.site, "bare:pw")}
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    agent.wait_for("running", named(here))
    refused = "check that the vhost exists, and the user's access" if ten.is_in_core else "insufficient permissions"
    for end in keys:
        wait_error(agent, here, f"shovel {end}", "login refused for user 'bare'", name=f"wrong {end}")
        agent.wait_for("invalid", named(here, f"wrong {end}"))
        wait_error(agent, here, f"shovel {end}", refused, name=f"bare {end}")
        assert "running" not in agent.history(here.vhost, f"bare {end}", "")
    admin.permissions(ten.site.vhost, "bare", write="^$", read="^$")
    for end in keys if ten.is_in_core else ("source",):  # 3.10 refuses messages and not the link
        restart(agent, here, f"bare {end}")
        wait_error(agent, here, "ACCESS_REFUSED", name=f"bare {end}")
    admin.permissions(ten.site.vhost, "bare")
    for end in keys:
        restart(agent, here, f"bare {end}")
        agent.wait_for("running", named(here, f"bare {end}"))


def restart(agent: Agent, here: Site, name: str) -> None:
    ask(agent, f"/api/shovels/vhost/{here.vhost}/{quote(name)}/restart", "DELETE")
