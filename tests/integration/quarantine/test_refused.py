"""Messages that the destination refuses by basic.nack: mostly a queue is full, and that is not their fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from agent.core.links import read_limits
from tests.bench.process import memory_mib
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_failures import link
from tests.integration.quarantine.scene import QUARANTINE, has_queue, only, publish_one, quarantined
from tests.integration.queue_links import scene as queue_links
from tests.integration.shovels.shoveling import links_of, named, shovel
from tests.lab.node import Node
from tests.lab.user_program import depth, numbered
from tests.lab.waiting import eventually

FULL = "full"


def fill(site: Site, name: str = FULL) -> None:
    """The queue takes nothing more until it is emptied."""
    site.node.admin.policy(
        site.vhost,
        f"limit {name}",
        f"^{name}$",
        definition={"max-length": 1, "overflow": "reject-publish"},
        apply_to="queues",
    )
    site.publish(["first"], name, exchange="")


def shows(agent: Agent, text: str) -> None:
    eventually(lambda: text in (only(agent)["error"] or ""), what=f"the link shows: {text}")


def two_queues(here: Site, there: Site) -> None:
    """One of them full."""
    here.exchange().queue("ok.#").queue("full.#", name=FULL)
    there.exchange()
    fill(here)


def test_of_an_exchange_link_what_is_refused_waits_and_the_rest_flows(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """More than the prefetch; and to come back would count, with a quorum queue."""
    count = read_limits.START_PREFETCH + 500
    two_queues(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"queue-type": "quorum"})}).start()
    agent.wait_for("running", link(here))
    there.publish(numbered(count), "full.a")
    there.publish(numbered(100), "ok.a")
    assert here.take(100) == numbered(100)
    oldest = f"the oldest to exchange '{X}' with key 'full.a'"
    shows(agent, f"{count} refused by the destination (is a queue there full?) and tried again, {oldest}")
    assert (only(agent)["status"], only(agent)["redelivered"]) == ("running", 0)
    here.node.admin.delete("policies", here.vhost, f"limit {FULL}")
    # The limit may go in the middle of an attempt, of which the rest then comes first.
    assert sorted(here.take(count + 1, queue=FULL)) == sorted(["first", *numbered(count)])
    eventually(lambda: only(agent)["error"] is None, what="nothing is refused any more")
    assert (only(agent)["redelivered"], only(agent)["quarantined"], has_queue(there)) == (0, 0, False)
    assert agent.terminate() == 0


def test_what_stays_refused_while_others_pass_goes_to_the_quarantine(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    two_queues(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"quarantine-after": "1s"})}).start()
    agent.wait_for("running", link(here))
    publish_one(there, X, "full.a", "bad", headers={"mine": 1}, type="t", expiration=3600)
    sent = 0

    def is_there() -> bool:
        nonlocal sent
        there.publish(numbered(1, start=sent), "ok.a")
        sent += 1
        return has_queue(there) and depth(there.uri, QUARANTINE) == 1

    eventually(is_there, what="it is in quarantine")
    [message] = quarantined(there, 1)
    headers: dict[str, Any] = dict(message.headers)
    assert (message.body, message.type, headers["mine"]) == (b"bad", "t", 1)
    assert "x-received-from" not in headers, "as it came"
    assert headers["x-quarantine-reason"] == "refused"
    assert (headers["x-quarantine-exchange"], headers["x-quarantine-routing-key"]) == (X, "full.a")
    eventually(lambda: only(agent)["quarantined"] == 1 and only(agent)["error"] is None, what="it is counted")
    assert here.take(sent) == numbered(sent)
    assert (only(agent)["redelivered"], depth(here.uri, FULL)) == (0, 1)
    assert agent.terminate() == 0


def test_where_all_is_refused_the_link_waits(agent_of: AgentOf, here: Site, there: Site) -> None:
    two_queues(here, there)
    agent = agent_of(here.node)
    settings = agent.settings(**{"stall-after": 2})
    agent.write({here.vhost: federated(there, **{"quarantine-after": 1})}, agent=settings).start()
    agent.wait_for("running", link(here))
    there.publish(numbered(20), "full.a")
    agent.wait_for("stalled", link(here))
    shows(agent, "20 refused by the destination")
    waited = only(agent)["oldest_unconfirmed_seconds"]
    assert waited >= 2, "it counts from when a message was refused first, not tried last"
    assert not has_queue(there)
    here.node.admin.delete("policies", here.vhost, f"limit {FULL}")
    # As above: the limit may go in the middle of an attempt.
    assert sorted(here.take(21, queue=FULL)) == sorted(["first", *numbered(20)])
    agent.wait_for("running", link(here))
    assert agent.terminate() == 0


def test_of_a_queue_link(agent_of: AgentOf, here: Site, there: Site) -> None:
    """The queue has room for one message, and its consumer takes all of them."""
    queue_links.declare(here, there)
    limit = {"max-length": 1, "overflow": "reject-publish"}
    here.node.admin.policy(here.vhost, "limit", f"^{queue_links.Q}$", definition=limit, apply_to="queues")
    definition = queue_links.federated(there, **{"quarantine-after": "5s"})
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", queue_links.queue(here))
    with queue_links.User(here, prefetch=1, pause=0.01) as user:
        there.publish(numbered(100), queue_links.Q, exchange="")
        shows(agent, "refused by the destination")
        assert set(user.wait(100)) == set(numbered(100))
    assert (only(agent)["redelivered"], has_queue(there)) == (0, False)
    assert agent.terminate() == 0


BULKY = "x" * 256 * 1024


@pytest.fixture
def roomy(second_broker: Node, site_on: SiteOn) -> Site:
    """A downstream that takes large messages."""
    return site_on(second_broker)


def refused(here: Site, there: Site, agent: Agent, count: int) -> None:
    """So many messages that are more than can be kept: most of them were tried, and wait at their source."""
    there.publish((f"{at} {BULKY}" for at in range(count)), "full.a")
    shows(agent, f"{count} refused by the destination")


def test_more_bytes_than_can_be_kept_hold_up_nothing(agent_of: AgentOf, roomy: Site, there: Site) -> None:
    here = roomy
    two_queues(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"queue-type": "quorum"})}).start()
    agent.wait_for("running", link(here))
    begun = time.monotonic()
    refused(here, there, agent, 600)
    eventually(lambda: only(agent)["redelivered"] > 0, what="what has no room comes again")
    there.publish(numbered(20), "ok.a")
    assert here.take(20) == numbered(20)
    found = only(agent)
    assert (found["status"], has_queue(there)) == ("running", False)
    assert found["redelivered"] < max(200, 15 * (time.monotonic() - begun)), "a few at a time, and seldom"
    assert memory_mib(agent.pid, peak=True) < 150
    here.node.admin.delete("policies", here.vhost, f"limit {FULL}")
    eventually(lambda: depth(here.uri, FULL) == 601, what="all get through once there is room")
    eventually(lambda: only(agent)["error"] is None, what="nothing is refused any more")
    assert len({body.split()[0] for body in here.take(601, queue=FULL)}) == 601
    assert agent.terminate() == 0


@pytest.mark.thorough
def test_what_could_not_be_kept_goes_to_the_quarantine_too_while_others_pass(
    agent_of: AgentOf, roomy: Site, there: Site
) -> None:
    here = roomy
    two_queues(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"quarantine-after": "10s"})}).start()
    agent.wait_for("running", link(here))
    refused(here, there, agent, 400)
    sent = 0

    def are_there() -> bool:
        nonlocal sent
        there.publish(numbered(1, start=sent), "ok.a")
        sent += 1
        return has_queue(there) and depth(there.uri, QUARANTINE) == 400

    eventually(are_there, what="all are in quarantine")
    assert here.take(sent) == numbered(sent)
    assert {each.body.split()[0] for each in quarantined(there, 400)} == {b"%d" % at for at in range(400)}
    eventually(lambda: only(agent)["quarantined"] == 400 and only(agent)["error"] is None, what="they are counted")
    assert agent.terminate() == 0


@pytest.mark.versions
@pytest.mark.parametrize(("release", "most"), [("trixie", 1), ("sid", 20)])
def test_what_could_not_be_kept_is_no_step_nearer_to_the_limit_of_a_quorum_queue(
    agent_of: AgentOf, roomy: Site, site_on: SiteOn, broker_on: Callable[..., Node], *, release: str, most: int
) -> None:
    """On 4.0 every return counts."""
    here = roomy
    there = site_on(broker_on(release, name="second"))
    two_queues(here, there)
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"queue-type": "quorum"})}).start()
    agent.wait_for("running", link(here))
    refused(here, there, agent, 300)
    time.sleep(10)
    there.publish(numbered(20), "ok.a")
    assert here.take(20) == numbered(20)
    assert only(agent)["redelivered"] <= 300 * most
    here.node.admin.delete("policies", here.vhost, f"limit {FULL}")
    eventually(lambda: depth(here.uri, FULL) == 301, what="all get through once there is room")
    assert agent.terminate() == 0


def test_of_shovels(agent_of: AgentOf, roomy: Site, there: Site) -> None:
    """One that moves what is there waits until all of it has got through; what can't be kept comes to it more than
    once."""
    here = roomy
    after = {"src_delete_after": "queue-length"}
    bodies = {"endless": numbered(20), "moves": numbered(20), "bulky": [f"{at} {BULKY}" for at in range(250)]}
    defined = {
        name: shovel(there, here, src_queue=name, dest_queue=name, **({} if name == "endless" else after))
        for name in bodies
    }
    for name, own in bodies.items():
        there.queue(name=name).publish(own, name, exchange="")
        here.queue(name=name)
        fill(here, name)
    agent = agent_of(here.node).write({here.vhost: {"shovels": defined}}).start()
    for name, own in bodies.items():
        shown = f"{len(own)} refused by the destination"
        eventually(
            lambda name=name, shown=shown: shown in str(links_of(agent)[name]["error"]),  # type: ignore[misc]
            what=f"{name} shows: {shown}",
            ignoring=(OSError, KeyError),
        )
    eventually(lambda: links_of(agent)["bulky"]["redelivered"] > 0, what="what has no room comes again")
    for name in bodies:
        here.node.admin.delete("policies", here.vhost, f"limit {name}")
    agent.wait_for("terminated", named(here, "moves"), named(here, "bulky"))
    for name in ("endless", "moves"):
        assert sorted(here.take(21, queue=name)) == sorted(["first", *numbered(20)])
        assert links_of(agent)[name]["redelivered"] == 0
    eventually(lambda: not any(depth(there.uri, name) for name in bodies), what="all of it is acknowledged")
    assert depth(here.uri, "bulky") == 251
    assert agent.terminate() == 0
