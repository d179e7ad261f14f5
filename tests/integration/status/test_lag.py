"""What an operator sees of a link that falls behind, stands still, and goes on, between real brokers."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.command import federation_agent
from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.status.asking import events, get, link_when, metric
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

PREFETCH = 10
MESSAGES = 25


def test_a_downstream_that_confirms_nothing_then_does_and_then_is_away(
    agent_of: AgentOf, broker: Node, here: Site, there: Site, proxy_to: Callable[[Node], Proxy]
) -> None:
    network = proxy_to(broker)
    here.exchange().queue("k")
    there.exchange()
    agent = agent_of(broker, uri=f"{broker.uri(port=network.port)}?heartbeat=60")
    section = {here.vhost: federated(there, **{"prefetch-count": PREFETCH})}
    agent.write(section).start()
    link_when(agent, "that runs", lambda link: link["status"] == "running")
    agent.write(section, agent=agent.settings(**{"stall-after": 2})).signal(signal.SIGHUP)
    eventually(lambda: len(agent.logged("configuration read")) == 2, what="the configuration is read again")
    quiet = link_when(agent, "with nothing behind", lambda link: link["backlog"] == 0)
    assert (quiet["status"], quiet["last_confirm"], quiet["oldest_unconfirmed_seconds"]) == ("running", None, 0)
    with events(agent) as told:
        assert next(told)[0] == "links"
        network.blackhole()
        there.publish([f"m{number}" for number in range(MESSAGES)])
        stalled = link_when(agent, "stalled", lambda link: link["status"] == "stalled")
        assert "confirmed none for" in stalled["error"]
        behind = link_when(agent, "that knows its backlog", lambda link: link["backlog"] == MESSAGES)
        assert (behind["in_flight"], behind["forwarded"]) == (PREFETCH, 0)
        assert behind["oldest_unconfirmed_seconds"] >= 2
        assert metric(agent, "federation_agent_backlog_messages") == MESSAGES
        assert metric(agent, "federation_agent_link_state", state="stalled") == 1
        network.restore()
        assert here.take(MESSAGES) == [f"m{number}" for number in range(MESSAGES)]
        seen = _until(told, lambda link: link["status"] == "running")
    assert "stalled" in {data["status"] for name, data in seen if name == "link"}
    assert any(name == "samples" and data[0]["in_flight"] == PREFETCH for name, data in seen)
    done = link_when(agent, "with nothing behind again", lambda link: link["backlog"] == 0)
    assert (done["forwarded"], done["in_flight"], done["oldest_unconfirmed_seconds"]) == (MESSAGES, 0, 0)
    assert done["last_confirm"] > done["since"][:10]
    assert metric(agent, "federation_agent_transfer_seconds_count") == MESSAGES
    assert (metric(agent, "federation_agent_transfer_seconds_bucket", le="1.0") or 0) <= MESSAGES - PREFETCH
    history = get(agent, f"/api/links/{done['id']}")["history"]
    assert [each["status"] for each in history["transitions"]][-3:] == ["running", "stalled", "running"]
    assert history["samples"][-1]["forwarded"] == MESSAGES
    network.cut()
    link_when(agent, "that came back", lambda link: link["reconnects"] == 1 and link["status"] == "running")
    reconnects = "federation_agent_reconnects_total"
    assert metric(agent, reconnects, side="downstream", reason="lost") == 1
    assert metric(agent, reconnects, side="upstream", reason="lost") == 0
    here.bind("another")
    there.wait_bound("another", "k")
    eventually(lambda: metric(agent, "federation_agent_binding_sync_seconds_count"), what="the bind was timed")
    assert metric(agent, "federation_agent_config_reload_success") == 1
    assert done["exchange"] == X
    network.close()
    check_known_while_away(agent, there)


def check_known_while_away(agent: Agent, there: Site) -> None:
    """The backlog at the upstream, while the downstream can't be reached."""
    link_when(agent, "in backoff", lambda link: link["status"] == "backoff")
    there.publish([f"m{number}" for number in range(MESSAGES)])
    away = link_when(agent, "in backoff with its backlog", lambda link: link["backlog"] == MESSAGES)
    assert away["status"] == "backoff"
    assert metric(agent, "federation_agent_backlog_messages") == MESSAGES
    eventually(  # the verdict is at most a second older
        lambda: f", {MESSAGES} messages wait upstream" in get(agent, "/api/causes")["verdict"],
        what="it is shown",
    )


def _until(told: Any, holds: Callable[[dict[str, Any]], bool]) -> list[tuple[str, Any]]:
    """Everything up to the event of a link of which that holds."""
    seen = []
    for name, data in told:
        seen.append((name, data))
        if name == "link" and holds(data):
            return seen
    raise AssertionError("the events have ended")


@contextmanager
def alarm(broker: Node) -> Iterator[None]:
    broker.limit_memory("1")
    try:
        yield
    finally:
        broker.limit_memory("2GB")


def test_lag_is_known_while_links_are_paused_or_blocked(
    agent_of: AgentOf, borrowed: Borrowed, site_on: SiteOn, there: Site
) -> None:
    """Beyond the prefetch, and of six links within theirs, to the message: none of those has one ready at its upstream,
    as all were sent, and nothing is taken for the downstream."""
    node = borrowed()
    few, here = site_on(node).exchange().queue("k"), site_on(node)
    there.exchange()
    within = {f"fed.{number}": 139 + number for number in range(6)}
    for name in within:
        here.exchange(name).queue("k", name=f"q {name}", exchange=name)
        there.exchange(name)
    narrow = federated(there, **{"prefetch-count": PREFETCH})
    agent = agent_of(node).write({few.vhost: narrow, here.vhost: federated(there)}).start()
    agent.wait_running(1 + len(within))
    for name in (X, *within):
        there.wait_bound("k", exchange=name)
    link = link_when(agent, "with nothing behind", lambda link: (link["exchange"], link["backlog"]) == (X, 0))
    get(agent, f"/api/links/{link['id']}/pause", "POST")
    link_when(agent, "paused", lambda link: link["status"] == "paused")
    there.publish([f"m{number}" for number in range(MESSAGES)])
    link_when(agent, "paused with its backlog", lambda link: (link["status"], link["backlog"]) == ("paused", MESSAGES))
    assert metric(agent, "federation_agent_backlog_messages", vhost=few.vhost) == MESSAGES
    with alarm(node):
        get(agent, f"/api/links/{link['id']}/resume", "POST")
        for name, count in within.items():
            there.publish([f"m{number}" for number in range(count)], exchange=name)
        there.publish(["more"])
        waiting = {X: MESSAGES + 1, **within}
        assert sum(waiting.values()) == 875

        def seen() -> dict[str, Any]:
            blocked = [each for each in get(agent, "/api/links") if each["status"] == "blocked"]
            return {each["exchange"]: each["backlog"] for each in blocked if each["backlog_is_exact"]}

        eventually(lambda: seen() == waiting, what=f"all of {waiting} are counted, and blocked")
        assert metric(agent, "federation_agent_backlog_messages", vhost=few.vhost) == MESSAGES + 1
        eventually(lambda: ", 875 messages wait upstream" in get(agent, "/api/causes")["verdict"], what="the sum")
        shown = federation_agent("status", "--url", f"http://127.0.0.1:{agent.port}").out
        assert "7 of 7 links blocked, 875 messages wait upstream" in shown
    assert len(few.take(MESSAGES + 1)) == MESSAGES + 1
    for name, count in within.items():
        assert here.take(count, queue=f"q {name}") == [f"m{number}" for number in range(count)]


@pytest.mark.thorough
def test_a_prefetch_that_is_too_small_for_the_path_is_named_as_what_holds_a_link_up(
    agent_of: AgentOf, broker: Node, here: Site, there: Site, proxy_to: Callable[[Node], Proxy]
) -> None:
    """So many wait that they don't become less by a twentieth in a minute, at ten in four seconds."""
    network, waiting = proxy_to(broker), 5_000
    here.exchange().queue("k")
    there.exchange()
    section = {here.vhost: federated(there, **{"prefetch-count": PREFETCH, "lag-critical": 100})}
    agent = agent_of(broker, uri=f"{broker.uri(port=network.port)}?heartbeat=60").write(section).start()
    link_when(agent, "that runs", lambda link: link["status"] == "running" and link["backlog"] == 0)
    there.wait_bound("k")
    network.delay(2)
    there.publish([f"m{number}" for number in range(waiting)])
    why = rf"wait \(limit 100\): in [\d.,]+/s, out [\d.]+/s, all {PREFETCH} of its prefetch unconfirmed$"

    def is_named() -> bool:
        return any(
            re.search(why, cause["error"]) and cause["advice"].startswith("Raise `prefetch-count`")
            for cause in get(agent, "/api/causes")["causes"]
        )

    eventually(is_named, what="the prefetch is named")
    network.delay(0)


def test_a_link_that_is_further_behind_than_its_upstream_allows(
    agent_of: AgentOf, broker: Node, here: Site, there: Site
) -> None:
    """While it runs and its messages are refused; a higher limit takes effect without a restart."""
    here.exchange()
    here.node.admin.queue(here.vhost, "full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    here.node.admin.bind(here.vhost, X, "full", "k")
    there.exchange()
    agent = agent_of(broker).write({here.vhost: federated(there, **{"lag-critical": 3})}).start()
    link_when(agent, "that runs", lambda link: link["status"] == "running")
    there.wait_bound("k")
    there.publish(["1", "2", "3", "4", "5"])
    behind = link_when(agent, "that is behind", lambda link: link["critical_since"] is not None)
    assert behind["lag_critical"] == {"seconds": None, "messages": 3}
    assert behind["status"] == "running"
    found = get(agent, "/api/causes")
    assert (found["level"], [cause["trouble"] for cause in found["causes"]]) == (
        "degraded", ["further behind than lag-critical"],
    )  # fmt: skip
    assert metric(agent, "federation_agent_lag_critical_messages") == 3
    assert (metric(agent, "federation_agent_backlog_messages") or 0) >= 3
    described = federation_agent("describe", behind["id"], "--url", f"http://127.0.0.1:{agent.port}")
    assert "lag_critical                3 messages" in described.out, described.out
    assert re.search(r"Do:      Look first at what holds the links up: \d refused by the destination", described.out)
    shown = federation_agent("status", "--url", f"http://127.0.0.1:{agent.port}")
    assert (shown.status, "(downstream): further behind than lag-critical" in shown.out) == (1, True)
    assert "refused by the destination (is a queue" in shown.out
    agent.write({here.vhost: federated(there, **{"lag-critical": "1h"})})
    link_when(agent, "that may be behind", lambda link: link["lag_critical"] == {"seconds": 3600, "messages": None})
    assert get(agent, "/api/causes")["level"] == "fine"
    assert metric(agent, "federation_agent_lag_critical_seconds") == 3600
    assert agent.history(here.vhost, X).count("running") == 1
