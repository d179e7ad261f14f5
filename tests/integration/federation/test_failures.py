"""Agents killed and stopped, connections cut, brokers away: nothing is lost, and what comes twice was in flight."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Q, Site, X, federated
from tests.integration.federation.test_api import ask
from tests.lab import user_program
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import DEADLINE, eventually

PREFETCH = 500
MESSAGES = 10_000
LATE = 2.0  # seconds that a link waits at most before it tries again
ProxyTo = Callable[[Node | int], Proxy]


def link(site: Site, upstream: str = "origin") -> tuple[str, str, str]:
    return site.vhost, X, upstream


@contextmanager
def load(site: Site, bodies: list[str]) -> Iterator[None]:
    """Publishes in the meantime; all of it stands upstream at the end."""
    publishing = threading.Thread(target=site.publish, args=(bodies,))
    publishing.start()
    try:
        yield
    finally:
        publishing.join(DEADLINE)
        assert not publishing.is_alive()


def wait_arriving(site: Site, more_than: int) -> None:
    """Until so many messages are in the queue."""

    def depth() -> int:
        found: int = user_program.depth(site.uri, Q)
        return found

    eventually(lambda: depth() > more_than, what=f"more than {more_than} messages in {Q}")


def check_nothing_lost(site: Site, bodies: list[str], interruptions: int) -> None:
    came = site.take(len(bodies))
    while set(bodies) - set(came) and (more := site.take(1)):  # what came twice may be among the first
        came += more
    while len(more := site.take(1, deadline=1)):
        came += more
    assert set(came) == set(bodies)
    assert len(came) <= len(bodies) + interruptions * PREFETCH


def test_the_agent_is_killed_at_any_moment(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"prefetch-count": PREFETCH})}).start()
    agent.wait_for("running", link(here))
    with load(there, bodies := numbered(MESSAGES)):
        for more_than in (0, 1_500, 3_000, 4_500):
            wait_arriving(here, more_than)
            agent.kill()
            agent.start()
    eventually(lambda: user_program.depth(here.uri, Q) >= MESSAGES, what="all of them arrive")
    check_nothing_lost(here, bodies, 4)


def wait_not_answering(agent: Agent, told: str) -> None:
    def found() -> bool:
        causes = ask(agent, "/api/causes")["causes"]
        return any(each["trouble"] == "not answering" and re.search(told, each["error"]) for each in causes)

    eventually(found, what=f"a broker is called not answering: {told}", ignoring=OSError)


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_a_port_that_says_nothing_is_not_answering(agent_of: AgentOf, here: Site, there: Site, scheme: str) -> None:
    here.exchange().queue("k")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}?connection_timeout=1000&verify=verify_none"
        agent = agent_of(here.node).write({here.vhost: federated(there, uri=uri)}).start()
        wait_not_answering(agent, "connected, but no AMQP within 1 s: the broker is frozen or overloaded")


def test_a_broker_that_is_suspended_is_said_to_have_answered_until_then(
    agent_of: AgentOf, here: Site, site_on: SiteOn, borrowed: Borrowed
) -> None:
    there = site_on(borrowed())
    here.exchange().queue("k")
    uri = f"{there.uri}?heartbeat=1&connection_timeout=1000"
    agent = agent_of(here.node).write({here.vhost: federated(there, uri=uri, **{"reconnect-delay": 1})}).start()
    agent.wait_for("running", link(here))
    [beam] = there.node.pids("beam.smp")
    os.kill(beam, signal.SIGSTOP)
    at = datetime.now(UTC)
    try:
        # A heartbeat comes each half second, on a machine that never stands still.
        times = "|".join((at + timedelta(seconds=each)).strftime("%H:%M:%S") for each in range(-30, 31))
        told = rf"it accepts connections and doesn't answer, it did until ({times}): frozen or overloaded\?"
        wait_not_answering(agent, told)
    finally:
        os.kill(beam, signal.SIGCONT)
    agent.wait_for("running", link(here))


def test_connections_are_cut_on_either_side(agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo) -> None:
    here.exchange().queue("k")
    up, down = proxy_to(there.node), proxy_to(here.node)
    definition = federated(there, **{"prefetch-count": PREFETCH})
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, port=up.port)
    agent = agent_of(here.node, uri=here.node.uri(port=down.port)).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    with load(there, bodies := numbered(MESSAGES)):
        for number, proxy in enumerate((up, down, up, down), 1):
            wait_arriving(here, number * 1_000)
            proxy.cut()
    eventually(lambda: user_program.depth(here.uri, Q) >= MESSAGES, what="all of them arrive")
    check_nothing_lost(here, bodies, 4)
    broken = [entry for entry in agent.logged("link changed") if entry["status"] == "backoff"]
    assert broken
    assert all("connection" in entry["error"] for entry in broken)
    there.wait_bound("k")


def test_a_stop_under_load_settles_and_keeps_the_queue(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    with load(there, bodies := numbered(MESSAGES)):
        for starts, more_than in enumerate((500, 3_000, 6_000), 1):
            wait_arriving(here, more_than)
            agent.wait_logged("started", starts)  # before that, Python itself ends at a signal
            assert agent.terminate() == 0
            agent.start()
    assert here.take(MESSAGES) == bodies
    assert agent.terminate() == 0
    there.publish(["meanwhile"])
    agent.start()
    assert here.take(1) == ["meanwhile"]


def test_dead_endpoints_are_passed_over(agent_of: AgentOf, here: Site, there: Site, lab: Lab) -> None:
    here.exchange().queue("k")
    dead = [f"amqp://127.0.0.1:{lab.ports.take()}" for _ in range(3)]
    definition = federated(there)
    definition["upstreams"]["origin"]["uri"] = [*dead, there.uri]
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    assert agent.history(*link(here)) == ["running"]
    there.publish(["m"])
    [message] = user_program.messages(here.uri, Q, 1)
    [told] = ask(agent, "/api/links")
    [native] = ask(agent, "/api/federation-links")
    received: Any = message.headers["x-received-from"]
    safe = there.uri.replace("guest:guest@", "")
    assert (told["uri"], native["uri"], received[0]["uri"]) == (safe, safe, safe)


def test_failures_that_pass_and_those_that_need_a_change(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    here.exchange().queue("k")
    proxy = proxy_to(there.node)
    proxy.refuse()
    definition = federated(there, **{"reconnect-delay": 1})
    upstreams = definition["upstreams"]
    upstreams["origin"]["uri"] = there.node.uri(there.vhost, port=proxy.port)
    upstreams["wrong"] = {"uri": there.node.uri(there.vhost, password="no")}
    upstreams["nowhere"] = {"uri": there.node.uri("no-such-vhost")}
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("backoff", link(here))
    agent.wait_for("invalid", link(here, "wrong"), link(here, "nowhere"))
    links = agent.links()
    assert "refused" in links[link(here)]["error"]
    assert "login refused for user 'guest'" in links[link(here, "wrong")]["error"]
    assert "'no-such-vhost' does not exist" in links[link(here, "nowhere")]["error"]
    proxy.accept()
    agent.wait_for("running", link(here))
    upstreams["wrong"]["uri"] = there.uri
    upstreams["wrong"]["exchange"] = "another"
    agent.write({here.vhost: definition})
    agent.wait_for("running", link(here, "wrong"))
    assert agent.history(*link(here, "nowhere")) == ["invalid"]


def test_a_silent_upstream_is_left_and_found_again(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    here.exchange().queue("k")
    proxy = proxy_to(there.node)
    definition = federated(there)
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, port=proxy.port) + "?heartbeat=1"
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    proxy.blackhole()
    agent.wait_for("backoff", link(here))
    assert "heartbeat" in agent.links()[link(here)]["error"]
    there.publish(["m"])
    proxy.restore()
    agent.wait_for("running", link(here))
    assert here.take(1) == ["m"]


def test_what_an_unfederated_link_left_is_removed_when_the_upstream_is_back(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    here.exchange()
    proxy = proxy_to(there.node)
    definition = federated(there, **{"reconnect-delay": 1})
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, port=proxy.port)
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    proxy.refuse()
    proxy.cut()
    agent.wait_for("backoff", link(here))
    agent.write({})
    eventually(lambda: not agent.links(), what="the link is gone")
    assert there.links_objects()
    proxy.accept()
    there.wait_clean()


def test_a_queue_that_shall_stay_stays(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange()
    definition = federated(there, **{"resource-cleanup-mode": "never"})
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    agent.write({})
    eventually(lambda: not agent.links(), what="the link is gone")
    assert agent.terminate() == 0
    assert len(there.links_objects()) == 2


def test_a_queue_that_stands_otherwise_is_used_and_noted(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    name = f"federation: {X} -> {here.node.cluster_name}:{here.vhost}:{X}"
    there.queue(name=name, arguments={"x-message-ttl": 3_600_000, "x-internal-purpose": "federation"})
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"message-ttl": 1000})}).start()
    agent.wait_for("running", link(here))
    there.publish(["m"])
    assert here.take(1) == ["m"]
    [noted] = agent.logged("link noted")
    assert "exists with another x-" in noted["note"]


@pytest.mark.thorough
def test_the_downstream_is_late_goes_and_comes_back(agent_of: AgentOf, lab: Lab, there: Site, site_on: SiteOn) -> None:
    node = lab.node("late")
    agent = agent_of(node)
    here = Site(node, "/")
    agent.write({"/": federated(there)}).start()
    agent.wait_logged("definitions not read")  # by polling, at the latest
    node.start()
    here.exchange().queue("k")
    agent.wait_for("running", link(here))
    there.publish(numbered(10))
    assert here.take(10) == numbered(10)
    node.stop()
    agent.wait_for("backoff", link(here))
    there.publish(numbered(10))
    node.start()
    agent.wait_for("running", link(here))
    assert here.take(10) == numbered(10)
    assert len(agent.logged("definitions not read")) <= 6  # said when it changes, not every time

    node.limit_memory("1")
    there.publish(numbered(10))
    agent.wait_for("blocked", link(here))
    assert "memory" in agent.links()[link(here)]["error"]

    # What begins meanwhile says so and collects upstream; what ends meanwhile is removed there.
    here.exchange("fed.new").queue("k", name="new", exchange="fed.new")
    agent.wait_for("blocked", ("/", "fed.new", "origin"))
    there.wait_bound("k", exchange="fed.new")
    here.bind("l", name="new", exchange="fed.new")
    here.unbind("k", name="new", exchange="fed.new")
    there.wait_bound("l", exchange="fed.new")
    here.bind("k", name="new", exchange="fed.new")
    there.wait_bound("k", "l", exchange="fed.new")
    there.publish(numbered(10), exchange="fed.new")
    here.exchange("fed.old")
    agent.wait_for("blocked", ("/", "fed.old", "origin"))
    here.delete_exchange("fed.old")
    eventually(lambda: not [name for name in there.links_objects() if "fed.old" in name], what="nothing of it is left")
    node.limit_memory("2GB")
    agent.wait_for("running", link(here))
    assert set(here.take(10)) == set(numbered(10))
    assert here.take(10, queue="new") == numbered(10)

    node.limit_memory("1")
    there.publish(numbered(10))
    agent.wait_for("blocked", link(here))
    assert agent.terminate() == 0
    assert there.links_objects()
    node.kill()


def test_links_go_on_without_the_http_api(agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo) -> None:
    here.exchange().queue("k")
    proxy = proxy_to(here.node.management_port)
    agent = agent_of(here.node, management_uri=here.node.management_uri(port=proxy.port))
    agent.write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    proxy.refuse()
    proxy.cut()
    here.bind("l")
    there.wait_bound("k", "l")  # events tell of a binding all that is needed, unless it has arguments
    here.bind("m", arguments={"n": 1})
    agent.wait_logged("definitions not read")  # by polling, at the latest
    there.publish(numbered(10))
    assert here.take(10) == numbered(10)
    proxy.accept()
    there.wait_bound("k", "l", "m")
    agent.wait_logged("definitions read again")
    assert agent.history(*link(here)) == ["running"]
    assert len(agent.logged("definitions not read")) in (
        1,
        2,
    )  # a reading may be cut in its midst, which reads otherwise


def test_what_may_not_be_published_needs_a_change(agent_of: AgentOf, here: Site, there: Site) -> None:
    """The broker tells when the first message comes; trying again every few seconds won't help."""
    here.exchange().queue("k")
    admin = here.node.admin
    admin.user(user := f"user of {here.vhost}", "few")
    admin.permissions("/", user)
    admin.permissions(here.vhost, user, write="^$")
    uri = here.node.uri(user=user, password="few")
    agent = agent_of(here.node, uri=uri).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.publish(["m"])
    agent.wait_for("invalid", link(here))
    error = agent.links()[link(here)]["error"]
    assert error.startswith("downstream ")
    assert f"access to exchange '{X}'" in error
    admin.permissions(here.vhost, user)
    [found] = ask(agent, "/api/links")
    ask(agent, f"/api/links/{found['id']}/restart", "POST")
    assert here.take(1) == ["m"]


def test_a_name_that_no_broker_takes(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Exchange and both vhosts are part of what stands upstream; a link that never was goes like others."""
    name = "fed." + "long" * 60
    here.exchange(name)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("invalid", (here.vhost, name, "origin"))
    assert "use shorter names" in agent.links()[here.vhost, name, "origin"]["error"]
    agent.write({})
    eventually(lambda: ask(agent, "/api/links") == [], what="the link is gone")
    assert agent.logged("unexpected error") == []


@pytest.mark.thorough
def test_the_first_retry_is_at_once_however_many_it_took_before(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    keys = [f"k{number}" for number in range(10)]
    here.exchange().queue(*keys)
    proxy = proxy_to(there.node)
    proxy.refuse()
    definition = federated(there, **{"reconnect-delay": LATE})
    definition["upstreams"]["origin"]["uri"] = there.node.uri(there.vhost, port=proxy.port)
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("backoff", link(here))
    time.sleep(3 * LATE)
    proxy.accept()
    agent.wait_for("running", link(here))
    took: list[float] = []
    while len(took) < 3 and (not took or took[-1] >= LATE / 2):  # a machine that stands still says nothing of it
        time.sleep(1.5 * LATE)
        [internal] = [name for name in there.links_objects() if name.endswith((" A", " B"))]
        there.delete_exchange(internal)
        eventually(lambda: runs_again(agent, here, 2 + len(took)), what="it was noticed, and the link runs again")
        broken, again = (datetime.fromisoformat(each["timestamp"]) for each in agent.logged("link changed")[-2:])
        took.append((again - broken).total_seconds())
    assert took[-1] < LATE / 2, took
    there.wait_bound(*keys)


def runs_again(agent: Agent, here: Site, times: int) -> bool:
    return agent.history(*link(here)) == ["backoff", "running"] * times
