"""Links that are no longer defined: what they built upstream waits, comes back untouched, or is removed in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import link
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually
from tests.tiers import thorough

LONG = {"empty": 300, "waiting": 600}


def queue_of(here: Site) -> str:
    return f"federation: {X} -> {here.node.cluster_name}:{here.vhost}:{X}"


def started(
    agent_of: AgentOf, here: Site, there: Site, cleanup: float | Mapping[str, float] | None, **more: Any
) -> Agent:
    """An agent whose one link runs."""
    here.exchange().queue("k")
    agent = agent_of(here.node)
    agent.cleanup_after = cleanup
    agent.write({here.vhost: federated(there, **more)}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("k")
    return agent


def only(agent: Agent) -> dict[str, Any]:
    [found] = ask(agent, "/api/links")
    return dict(found)


def wait_shown(agent: Agent, status: str) -> dict[str, Any]:
    eventually(lambda: only(agent)["status"] == status, what=f"the link is {status}")
    return only(agent)


def act(agent: Agent, action: str) -> None:
    ask(agent, f"/api/links/{only(agent)['id']}/{action}", "POST")


def pause(agent: Agent, there: Site) -> None:
    act(agent, "pause")
    wait_shown(agent, "paused")
    there.wait_unconsumed()


def test_a_file_that_is_written_slowly_loses_no_messages(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = started(agent_of, here, there, None)
    pause(agent, there)
    there.publish(numbered(200))
    text = agent.path.read_text()
    [head, tail] = text.split("vhosts:", 1)
    with agent.path.open("w") as file:
        file.write(head)
        file.flush()
        time.sleep(3)
        there.publish(numbered(50, start=200))
        there.wait_depth(250, queue_of(here))
        file.write(f"vhosts:{tail}")
    wait_shown(agent, "paused")
    act(agent, "resume")
    assert here.take(250) == numbered(250)
    assert len(agent.logged("started")) == 1


def test_a_file_that_still_grows_takes_no_effect(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = started(agent_of, here, there, None)
    text = agent.path.read_text()
    with agent.path.open("w") as file:
        file.write(text.split("vhosts:", 1)[0])
        longest, before = 0.0, time.monotonic()
        for _ in range(15):
            file.write("# this line is one of many\n")
            file.flush()
            time.sleep(0.2)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        file.write("vhosts:" + text.split("vhosts:", 1)[1])
    agent.wait_logged("configuration read", 2)
    if longest < 0.8:  # otherwise it didn't grow all the time
        assert agent.history(*link(here)) == ["running"]


def test_an_empty_queue_is_removed_after_the_time_that_was_set(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = started(agent_of, here, there, {"empty": 15})
    built = there.links_objects()
    agent.write({})
    wait_shown(agent, "removing")
    eventually(lambda: "(it is empty)" in only(agent)["error"], what="its queue is looked at")
    shown = only(agent)
    assert shown["error"].startswith("no longer defined; its queue upstream is removed in ")
    assert shown["error"].endswith(" s (it is empty); define it again to keep it")
    assert shown["backlog"] == 0
    assert there.links_objects() == built
    assert 'state="removing"} 1' in ask(agent, "/metrics")
    assert [each["status"] for each in ask(agent, "/api/federation-links")] == ["shutdown"]
    assert ask(agent, "/api/federation-links/state/down") == []
    with pytest.raises(HTTPError, match="409"):
        act(agent, "restart")
    since = time.monotonic()
    there.wait_clean()
    assert time.monotonic() - since > 1
    eventually(lambda: ask(agent, "/api/links") == [], what="the link is gone")
    assert agent.history(*link(here)) == ["running", "removing", "stopping"]


@pytest.mark.thorough
def test_messages_that_wait_are_kept_for_longer_and_counted(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = started(agent_of, here, there, {"empty": 0.5, "waiting": 15})
    pause(agent, there)
    there.publish(numbered(7))
    agent.write({})
    wait_shown(agent, "removing")
    eventually(lambda: only(agent)["backlog"] == 7, what="what waits is counted")
    assert "(7 messages wait)" in only(agent)["error"]
    there.publish(numbered(3))
    time.sleep(2)
    there.wait_depth(10, queue_of(here))
    there.wait_clean()
    eventually(lambda: ask(agent, "/api/links") == [], what="the link is gone")


@pytest.mark.parametrize("queue_type", ["classic", thorough("quorum")])
def test_a_link_that_is_defined_again_comes_back_untouched(
    agent_of: AgentOf, here: Site, there: Site, queue_type: str
) -> None:
    agent = started(agent_of, here, there, LONG, **{"queue-type": queue_type})
    there.publish(numbered(5))
    assert here.take(5) == numbered(5)
    defined, built, bound = agent.path.read_text(), there.links_objects(), there.federated_bindings()
    agent.write({})
    wait_shown(agent, "removing")
    there.publish(numbered(5, start=5))
    here.bind("l")  # what changed meanwhile is followed
    agent.write_text(defined)
    agent.wait_for("running", link(here))
    there.wait_bound("k", "l")
    assert here.take(5) == numbered(5, start=5)
    eventually(lambda: only(agent)["forwarded"] == 10, what="its counters go on")
    assert there.links_objects() == built
    assert [each for each in there.federated_bindings() if each["routing_key"] == "k"] == bound
    agent.cleanup_after = 0.5
    agent.write({})
    there.wait_clean()
    assert not [each for each in agent.logged("link changed") if each["status"] == "backoff"]


def test_the_end_of_the_agent_removes_nothing(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = started(agent_of, here, there, {"empty": 6})
    built = there.links_objects()
    agent.write({})
    wait_shown(agent, "removing")
    assert agent.terminate() == 0
    time.sleep(6)
    assert there.links_objects() == built


def test_a_renamed_upstream_takes_the_queue_over_from_the_link_that_is_removed(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    agent = started(agent_of, here, there, {"empty": 6})
    agent.write({})
    wait_shown(agent, "removing")
    there.publish(numbered(5))
    definition = federated(there)
    definition["upstreams"] = {"renamed": definition["upstreams"]["origin"]}
    agent.write({here.vhost: definition})
    agent.wait_for("running", link(here, "renamed"))
    assert here.take(5) == numbered(5)
    time.sleep(5)
    assert queue_of(here) in there.links_objects()
    assert [each["upstream"] for each in ask(agent, "/api/links")] == ["renamed"]


def test_nothing_is_removed_while_the_configuration_is_refused(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = started(agent_of, here, there, {"empty": 10})
    defined, built = agent.path.read_text(), there.links_objects()
    agent.write({})
    wait_shown(agent, "removing")
    agent.write_text("downstream: [")
    agent.wait_logged("definitions refused, the last good ones stay in force")
    eventually(lambda: "once definitions can be read again" in only(agent)["error"], what="it waits")
    time.sleep(6)
    assert there.links_objects() == built
    agent.write_text(defined)
    agent.wait_for("running", link(here))
    assert there.links_objects() == built


def test_a_quorum_queue_is_removed_and_other_links_of_the_upstream_go_on(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    here.exchange("fed.other")
    agent = started(agent_of, here, there, 0, **{"queue-type": "quorum"})
    agent.wait_for("running", (here.vhost, "fed.other", "origin"))
    there.publish(numbered(3))
    assert here.take(3) == numbered(3)
    here.delete_exchange()
    eventually(lambda: queue_of(here) not in there.links_objects(), what="the queue is removed")
    assert agent.history(here.vhost, "fed.other") == ["running"]
    assert agent.logged("link noted") == []


def leader_of(there: Site, queue: str, order: str) -> None:
    """Has the leader of a quorum queue suspended or resumed."""
    there.node.eval(
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{there.vhost}">>, queue, <<"{queue}">>)), '
        f"{{Name, _}} = amqqueue:get_pid(Q), sys:{order}(whereis(Name)).",
    )


@pytest.mark.thorough
def test_a_quorum_queue_whose_leader_does_not_answer_is_not_taken_for_empty(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """Brokers declare such a queue as empty and unused, and delete it by force."""
    agent = started(agent_of, here, there, {"empty": 2, "waiting": 600}, **{"queue-type": "quorum"})
    pause(agent, there)
    there.publish(numbered(200))
    leader_of(there, queue_of(here), "suspend")
    agent.write({})
    wait_shown(agent, "stopping")
    time.sleep(8)
    leader_of(there, queue_of(here), "resume")
    eventually(lambda: only(agent)["backlog"] == 200, what="what waits is counted")
    assert only(agent)["status"] == "removing"
    there.wait_depth(200, queue_of(here))


@pytest.mark.parametrize("upstream", ["origin", thorough("renamed")])
def test_a_queue_that_is_wanted_again_while_its_removal_connects_keeps_its_messages(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: Callable[[Node | int], Proxy], upstream: str
) -> None:
    proxy = proxy_to(there.node)
    uri = there.node.uri(there.vhost, port=proxy.port)
    agent = started(agent_of, here, there, 0, uri=uri)
    proxy.refuse()
    proxy.cut()
    agent.wait_for("backoff", link(here))
    there.publish(numbered(200))
    agent.write({})
    wait_shown(agent, "stopping")
    proxy.blackhole()
    accepted = proxy.accepted  # none more, as long as it refuses
    proxy.accept()
    eventually(lambda: proxy.accepted > accepted, what="the removal connects")
    definition = federated(there, uri=uri)
    definition["upstreams"] = {upstream: definition["upstreams"]["origin"]}
    agent.write({here.vhost: definition})
    eventually(
        lambda: any(each["upstream"] == upstream and each["status"] == "starting" for each in ask(agent, "/api/links")),
        what="it is wanted again",
    )
    proxy.restore()
    assert here.take(200) == numbered(200)


def test_a_classic_queue_of_a_link_that_is_quorum_now_is_removed_with_its_messages(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """It counts nobody who fetched a message as a consumer."""
    agent = started(agent_of, here, there, {"empty": 0, "waiting": 1})
    agent.write({here.vhost: federated(there, **{"queue-type": "quorum"})})
    eventually(lambda: agent.logged("link noted"), what="the queue is of another type")
    agent.wait_for("running", link(here))
    pause(agent, there)
    there.publish(numbered(20))
    there.wait_depth(20, queue_of(here))
    agent.write({})
    eventually(lambda: queue_of(here) not in there.links_objects(), what="the queue is removed")


def test_a_quorum_queue_of_a_link_that_is_classic_now_is_removed_and_other_links_go_on(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """Brokers close the connection over a condition for the deletion of a quorum queue."""
    here.exchange("fed.other")
    agent = started(agent_of, here, there, 0, **{"queue-type": "quorum"})
    agent.write({here.vhost: federated(there, **{"queue-type": "classic"})})
    eventually(lambda: len(agent.logged("link noted")) == 2, what="the queues are of another type")
    agent.wait_for("running", link(here), (here.vhost, "fed.other", "origin"))
    before = len(agent.history(here.vhost, "fed.other"))
    here.delete_exchange()
    eventually(lambda: queue_of(here) not in there.links_objects(), what="the queue is removed")
    time.sleep(1)
    assert agent.history(here.vhost, "fed.other")[before:] == []
