"""Twenty TCP resets at one end while messages flow: what each ack mode loses and repeats, and that it goes on."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.integration.shovels.shoveling import ask, named, running, shovel, shovels
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually
from tests.tiers import thorough

RESETS: Final = 20
PREFETCH: Final = 200
QUIET: Final = 2.0
COUNT: Final = int(os.environ.get("SHOVEL_RESET_MESSAGES", "4000"))
"""How many messages flow meanwhile; `--log-cli-level info` shows what was lost and repeated of them."""
ENDS: Final = ("source", "destination")
LOSES_NOTHING: Final = {("on-confirm", "source"), ("on-confirm", "destination"), ("on-publish", "source")}

log = logging.getLogger(__name__)

ProxyTo = Callable[[Node | int], Proxy]


def cut_off(proxy: Proxy, end: str, source: Site, destination: Site, **keys: Any) -> dict[str, Any]:
    """A shovel with one end behind the proxy."""
    site, key = (source, "src-uri") if end == "source" else (destination, "dest-uri")
    definition = shovel(source, destination, reconnect_delay=0.2, src_prefetch_count=PREFETCH, **keys)
    return definition | {key: site.node.uri(site.vhost, port=proxy.port)}


def proxy_of(proxy_to: ProxyTo, end: str, source: Site, destination: Site) -> Proxy:
    return proxy_to(source.node if end == "source" else destination.node)


def reset_while(agent: Agent, site: Site, proxy: Proxy, publish: Callable[[int], object]) -> None:
    """Each part is published while a connection is cut, with some of it on the way.

    It is cut only once the link runs as the API shows it: a cut while it opens again is no further loss, and the last
    line of the log may be older than that.
    """
    agent.wait_for("running", named(site))
    for part in range(RESETS):
        eventually(lambda: status(agent) == "running", what="the link runs")
        before = counted(agent)
        publishing = threading.Thread(target=publish, args=(part,))
        publishing.start()
        wait_more(agent, "forwarded", before)
        proxy.cut()
        wait_more(agent, "reconnects", before)
        publishing.join()


def counted(agent: Agent) -> dict[str, int]:
    [link] = ask(agent, "/api/links")
    return {name: int(link[name]) for name in ("forwarded", "reconnects")}


def status(agent: Agent) -> str:
    [link] = ask(agent, "/api/links")
    return str(link["status"])


def wait_more(agent: Agent, name: str, before: dict[str, int]) -> None:
    eventually(lambda: counted(agent)[name] > before[name], what=f"more {name}")


def reconnects(agent: Agent) -> int:
    return counted(agent)["reconnects"]


def all_taken(agent: Agent, site: Site) -> list[str]:
    """What came, repeated messages with it, once no more comes."""
    seen = [-1]

    def has_nothing_in_flight() -> bool:
        [link] = ask(agent, "/api/links")
        return bool(link["in_flight"] == 0)

    def is_quiet() -> bool:
        time.sleep(QUIET)
        seen.append(depth(site.uri, "dest"))
        return seen[-1] == seen[-2]

    eventually(has_nothing_in_flight, what="nothing is in flight")
    eventually(is_quiet, what="no more messages come")
    return site.take(seen[-1], queue="dest")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "ack_mode",
    [
        "on-confirm",
        thorough("on-publish"),
        thorough("no-ack"),
    ],
)
def test_what_is_lost_and_repeated(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo, *, ack_mode: str, end: str
) -> None:
    """`on-confirm` loses nothing. `on-publish` loses what the destination had not received when its connection was
    lost; `no-ack` also what was on its way from the source. Neither repeats what it acknowledged.
    """
    proxy = proxy_of(proxy_to, end, there, here)
    agent = running(agent_of(here.node), here, cut_off(proxy, end, there, here, ack_mode=ack_mode))
    part = COUNT // RESETS
    reset_while(
        agent, here, proxy, lambda number: there.publish(numbered(part, start=part * number), "src", exchange="")
    )
    agent.wait_for("running", named(here))
    eventually(lambda: depth(there.uri, "src") == 0, what="the source is drained")
    last = numbered(100, start=COUNT)
    there.publish(last, "src", exchange="")
    came = Counter(all_taken(agent, here))
    assert set(last) <= came.keys(), "the shovel goes on"
    lost = COUNT + 100 - len(came)
    repeated = came.total() - len(came)
    log.info("%s, %s: of %d messages %d lost, %d repeated", ack_mode, end, COUNT, lost, repeated)
    assert reconnects(agent) >= RESETS
    assert repeated <= (0 if ack_mode == "no-ack" else RESETS * PREFETCH)
    assert lost == 0 or (ack_mode, end) not in LOSES_NOTHING
    assert depth(there.uri, "src") == 0


@pytest.mark.parametrize("end", ["source", thorough("destination")])
@pytest.mark.thorough
def test_what_was_there_is_moved_and_nothing_is_left(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo, end: str
) -> None:
    """What comes twice counts once."""
    there.queue(name="src").publish(numbered(COUNT), "src", exchange="")
    proxy = proxy_of(proxy_to, end, there, here)
    agent = interrupted(
        agent_of(here.node), here, proxy, cut_off(proxy, end, there, here, src_delete_after="queue-length")
    )
    agent.wait_for("terminated", named(here))
    assert set(all_taken(agent, here)) == set(numbered(COUNT))
    assert depth(there.uri, "src") == 0


@pytest.mark.parametrize(
    ("ack_mode", "end"),
    [("on-confirm", "source"), thorough("on-confirm", "destination"), thorough("on-publish", "source")],
)
def test_so_many_messages_and_no_more(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo, *, ack_mode: str, end: str
) -> None:
    there.queue(name="src").publish(numbered(COUNT), "src", exchange="")
    proxy = proxy_of(proxy_to, end, there, here)
    wanted = COUNT * 3 // 4
    definition = cut_off(proxy, end, there, here, src_delete_after=wanted, ack_mode=ack_mode)
    agent = interrupted(agent_of(here.node), here, proxy, definition)
    agent.wait_for("terminated", named(here))
    eventually(lambda: depth(there.uri, "src") == COUNT - wanted, what="all others are back")
    assert set(all_taken(agent, here)) == set(numbered(wanted))
    assert there.take(COUNT - wanted, queue="src") == numbered(COUNT - wanted, start=wanted)


def test_while_others_publish_nothing_is_left_and_little_is_too_much(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: ProxyTo
) -> None:
    """Which acknowledgements were lost with the connection to the source can't be known then."""
    there.queue(name="src").publish(numbered(COUNT), "src", exchange="")
    proxy = proxy_of(proxy_to, "source", there, here)
    agent = agent_of(here.node)
    ends = threading.Event()

    def load() -> None:
        eventually(lambda: agent.alive, what="the agent is started")
        agent.wait_for("running", named(here))
        start = COUNT
        while not ends.is_set():
            there.publish(numbered(50, start=start), "src", exchange="")
            start += 50

    publishing = threading.Thread(target=load)
    publishing.start()
    try:
        definition = cut_off(proxy, "source", there, here, src_delete_after="queue-length")
        interrupted(agent, here, proxy, definition)
        agent.wait_for("terminated", named(here))
    finally:
        ends.set()
        publishing.join()
    came = set(all_taken(agent, here))
    assert set(numbered(COUNT)) <= came
    assert len(came) <= COUNT + RESETS * PREFETCH
    log.info("%d of %d moved too many", len(came) - COUNT, COUNT)


@pytest.mark.versions
@pytest.mark.parametrize("end", ENDS)
def test_what_was_there_in_a_quorum_queue_of_another_release(
    agent_of: AgentOf, broker_on: Callable[..., Node], site_on: SiteOn, here: Site, proxy_to: ProxyTo, *, end: str
) -> None:
    there = site_on(broker_on("sid"))
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    there.node.admin.queue(there.vhost, "src", arguments=arguments)
    there.publish(numbered(COUNT), "src", exchange="")
    proxy = proxy_of(proxy_to, end, there, here)
    definition = cut_off(proxy, end, there, here, src_delete_after="queue-length")
    agent = interrupted(agent_of(here.node), here, proxy, definition)
    agent.wait_for("terminated", named(here))
    assert set(all_taken(agent, here)) == set(numbered(COUNT))
    assert depth(there.uri, "src") == 0


def interrupted(agent: Agent, site: Site, proxy: Proxy, definition: dict[str, Any]) -> Agent:
    """The agent, whose shovel is cut off again and again until it has finished; slowly, so that it is midway."""
    proxy.throttle(COUNT * 4)
    agent.write({site.vhost: shovels(definition)}).start()
    agent.wait_for("running", named(site))
    for _ in range(RESETS):
        before = counted(agent)["forwarded"]
        eventually(partial(has_gone_on, agent, before), what="it goes on")
        if has_ended(agent):
            break
        proxy.cut()
    proxy.throttle(None)
    assert reconnects(agent) >= 3
    return agent


def has_gone_on(agent: Agent, before: int) -> bool:
    return has_ended(agent) or counted(agent)["forwarded"] > before


def has_ended(agent: Agent) -> bool:
    return status(agent) == "terminated"
