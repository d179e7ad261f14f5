"""What agents say of failures and do about them: brokers away, silent, full or strict, and stops, kills and cuts
under load."""

import os
import re
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import CHANGED, Agent
from tests.integration.federation.sites import Q, Site, X, federated, policies, stream
from tests.integration.federation.test_api import ask
from tests.lab import user_program
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

PREFETCH = 200
SLOW = 100_000  # bytes per second: fewer messages than are published, so that the link is never idle
ProxyTo = Callable[[Node | int], Proxy]


def link(site: Site, upstream: str = "origin") -> tuple[str, str, str]:
    return site.vhost, X, upstream


def wait_arriving(site: Site) -> None:
    """Until more messages have come than could be on the way."""
    before = user_program.depth(site.uri, Q)
    eventually(lambda: user_program.depth(site.uri, Q) > before + PREFETCH, what=f"messages come into {Q}")


def take_all(site: Site, bodies: list[str]) -> list[str]:
    """Also where some come twice."""
    came = site.take(len(bodies))
    while set(bodies) - set(came) and (more := site.take(1)):
        came += more
    return came


def test_under_load_a_stop_settles_all_and_a_kill_or_a_cut_loses_nothing(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    """After a kill or a cut, what was on the way may come twice."""
    here.exchange().queue("k")
    up, down = proxy_to(there.node), proxy_to(here.node)
    uri = there.node.uri(there.vhost, port=up.port)
    agent = agent_of(here.node, uri=here.node.uri(port=down.port))
    agent.write({here.vhost: federated(there, uri=uri, **{"prefetch-count": PREFETCH})}).start()
    agent.wait_for("running", link(here))
    down.throttle(SLOW)
    with stream(there) as published:
        for _ in range(2):
            wait_arriving(here)
            assert agent.terminate() == 0
            agent.start()
        wait_arriving(here)
    down.throttle(None)
    assert here.take(len(published)) == published
    assert agent.terminate() == 0
    there.publish(["meanwhile"])
    agent.start()
    assert here.take(1) == ["meanwhile"]

    def kill() -> None:
        agent.kill()
        agent.start()

    interruptions = (kill, up.cut, down.cut)
    down.throttle(SLOW)
    with stream(there) as published:
        for interrupt in interruptions:
            wait_arriving(here)
            interrupt()
    down.throttle(None)
    came = take_all(here, published)
    assert set(came) == set(published)
    assert len(came) <= len(published) + len(interruptions) * PREFETCH
    there.wait_bound("k")


def not_answering(agent: Agent, told: str) -> set[str]:
    """The upstreams that the page calls not answering, for this reason."""
    upstreams = {each["id"]: str(each["upstream"]) for each in ask(agent, "/api/links")}
    causes = [each for each in ask(agent, "/api/causes")["causes"] if re.search(told, str(each["error"]))]
    return {upstreams[each] for cause in causes if cause["trouble"] == "not answering" for each in cause["links"]}


def test_every_failure_is_told_in_its_words_and_some_need_a_change(  # noqa: PLR0917
    agent_of: AgentOf, here: Site, there: Site, site_on: SiteOn, borrowed: Borrowed, proxy_to: ProxyTo, lab: Lab
) -> None:
    """Of links side by side: what refuses, what says nothing, what lets nobody in, what was suspended; and the one of
    four addresses that answers."""
    here.exchange().queue("k")
    frozen, proxy = site_on(borrowed()), proxy_to(there.node)
    proxy.refuse()
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as silent_by_tls:

        def says_nothing(scheme: str, server: socket.socket) -> str:
            return f"{scheme}://127.0.0.1:{server.getsockname()[1]}?connection_timeout=1000&verify=verify_none"

        uris = {
            "refused": there.node.uri(there.vhost, port=proxy.port),
            "wrong": there.node.uri(there.vhost, password="no"),
            "nowhere": there.node.uri("no-such-vhost"),
            "silent": says_nothing("amqp", silent),
            "silent-by-tls": says_nothing("amqps", silent_by_tls),
            "frozen": f"{frozen.uri}?heartbeat=1&connection_timeout=1000",
            "listed": [*(f"amqp://127.0.0.1:{lab.ports.take()}" for _ in range(3)), there.uri],
        }
        upstreams = {name: {"uri": uri, "exchange": name, "reconnect-delay": 1} for name, uri in uris.items()}
        section = {"upstreams": upstreams, "policies": policies()}
        agent = agent_of(here.node).write({here.vhost: section}).start()
        agent.wait_for("running", link(here, "frozen"), link(here, "listed"))
        agent.wait_for("backoff", link(here, "refused"))
        agent.wait_for("invalid", link(here, "wrong"), link(here, "nowhere"))
        links = agent.links()
        assert "refused" in links[link(here, "refused")]["error"]
        assert "login refused for user 'guest'" in links[link(here, "wrong")]["error"]
        assert "'no-such-vhost' does not exist" in links[link(here, "nowhere")]["error"]
        told = "connected, but no AMQP within 1 s: the broker is frozen or overloaded"
        eventually(lambda: not_answering(agent, told) >= {"silent", "silent-by-tls"}, what="they don't answer")
        check_the_address_that_answers(agent, here, there)
        check_suspended(agent, here, frozen)

    proxy.accept()
    agent.wait_for("running", link(here, "refused"))
    upstreams["wrong"]["uri"] = there.uri
    agent.write({here.vhost: section}).reload()
    agent.wait_for("running", link(here, "wrong"))
    assert agent.history(*link(here, "nowhere")) == ["invalid"]


def check_the_address_that_answers(agent: Agent, here: Site, there: Site) -> None:
    assert agent.history(*link(here, "listed")) == ["running"]
    there.wait_bound("k", exchange="listed")
    there.publish(["m"], exchange="listed")
    [message] = user_program.messages(here.uri, Q, 1)
    [told] = [each for each in ask(agent, "/api/links") if each["upstream"] == "listed"]
    [native] = [each for each in ask(agent, "/api/federation-links") if each["upstream"] == "listed"]
    received: Any = message.headers["x-received-from"]
    safe = there.uri.replace("guest:guest@", "")
    assert (told["uri"], native["uri"], received[0]["uri"]) == (safe, safe, safe)


def check_suspended(agent: Agent, here: Site, frozen: Site) -> None:
    """It is missed by its heartbeats, said to have answered until then, and found again."""

    def losses() -> list[str]:
        changes = [each for each in agent.logged(CHANGED) if each["upstream"] == "frozen"]
        return [str(each["error"]) for each in changes if each["status"] == "backoff"]

    [beam] = frozen.node.pids("beam.smp")
    os.kill(beam, signal.SIGSTOP)
    at = datetime.now(UTC)
    try:
        agent.wait_for("backoff", link(here, "frozen"))
        eventually(lambda: any("heartbeat" in each for each in losses()), what="its heartbeats are missed")
        # A heartbeat comes each half second, on a machine that never stands still.
        times = "|".join((at + timedelta(seconds=each)).strftime("%H:%M:%S") for each in range(-30, 31))
        told = rf"it accepts connections and doesn't answer, it did until ({times}): frozen or overloaded\?"
        eventually(lambda: "frozen" in not_answering(agent, told), what="it is said when it answered")
    finally:
        os.kill(beam, signal.SIGCONT)
    agent.wait_for("running", link(here, "frozen"))
    frozen.publish(["n"], exchange="frozen")
    assert here.take(1) == ["n"]


def test_a_queue_that_stands_otherwise_is_used_noted_and_kept_if_it_shall_stay(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    here.exchange().queue("k")
    name = f"federation: {X} -> {here.node.cluster_name}:{here.vhost}:{X}"
    there.queue(name=name, arguments={"x-message-ttl": 3_600_000, "x-internal-purpose": "federation"})
    definition = federated(there, **{"message-ttl": 1000, "resource-cleanup-mode": "never"})
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", link(here))
    there.publish(["m"])
    assert here.take(1) == ["m"]
    [noted] = agent.logged("link noted")
    assert "exists with another x-" in noted["note"]
    agent.write({}).reload()
    eventually(lambda: not agent.links(), what="the link is gone")
    assert agent.terminate() == 0
    assert len(there.links_objects()) == 2


@pytest.mark.thorough
def test_the_downstream_is_late_and_its_memory_is_low(
    agent_of: AgentOf, lab: Lab, there: Site, site_on: SiteOn
) -> None:
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
