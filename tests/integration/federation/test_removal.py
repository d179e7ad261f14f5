"""Links that are no longer defined: what they built upstream waits, comes back untouched, or is removed in time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.error import HTTPError

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import link
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.user_program import numbered, times
from tests.lab.waiting import eventually

LONG: Final = {"empty": 300, "waiting": 600}
QUORUM: Final = "of quorum"


def queue_of(here: Site, upstream_exchange: str = X) -> str:
    return f"federation: {upstream_exchange} -> {here.node.cluster_name}:{here.vhost}:{X}"


def both(there: Site) -> dict[str, Any]:
    """Two links of one exchange: `origin` with a classic queue, `quorum` with one of that type."""
    definition = federated(there)
    settings = {"exchange": QUORUM, "queue-type": "quorum"}
    definition["upstreams"]["quorum"] = definition["upstreams"]["origin"] | settings
    return definition


def started(
    agent_of: AgentOf, here: Site, definition: dict[str, Any], cleanup: float | Mapping[str, float] | None
) -> Agent:
    """An agent whose links run, one for each upstream."""
    here.exchange().queue("k")
    agent = agent_of(here.node)
    agent.cleanup_after = cleanup
    agent.write({here.vhost: definition}).start()
    agent.wait_for("running", *(link(here, upstream) for upstream in definition["upstreams"]))
    return agent


def shown(agent: Agent, upstream: str = "origin") -> dict[str, Any]:
    [found] = [each for each in ask(agent, "/api/links") if each["upstream"] == upstream]
    return dict(found)


def wait_shown(agent: Agent, status: str, *upstreams: str) -> None:
    names = upstreams or ("origin",)
    eventually(lambda: all(shown(agent, each)["status"] == status for each in names), what=f"{names} {status}")


def wait_none(agent: Agent) -> None:
    eventually(lambda: ask(agent, "/api/links") == [], what="no link is shown")


def act(agent: Agent, action: str, upstream: str = "origin") -> None:
    ask(agent, f"/api/links/{shown(agent, upstream)['id']}/{action}", "POST")


def pause(agent: Agent, there: Site, *upstreams: str) -> None:
    for each in upstreams or ("origin",):
        act(agent, "pause", each)
    wait_shown(agent, "paused", *upstreams)
    there.wait_unconsumed()


def test_a_link_waits_comes_back_untouched_and_is_removed_in_time(agent_of: AgentOf, here: Site, there: Site) -> None:
    """With a classic queue and with one of type quorum."""
    agent = started(agent_of, here, both(there), LONG)
    for exchange in (X, QUORUM):
        there.wait_bound("k", exchange=exchange)
        there.publish(numbered(5), exchange=exchange)
    assert times(here.take(10)) == dict.fromkeys(numbered(5), 2)
    defined, built, bound = agent.path.read_text(), there.links_objects(), there.federated_bindings()
    queues = {each["name"]: each["arguments"] for each in there.node.admin.get("queues", there.vhost)}
    assert queues[queue_of(here, QUORUM)]["x-queue-type"] == "quorum"

    agent.write({}).reload()
    wait_shown(agent, "removing", "origin", "quorum")
    for upstream in ("origin", "quorum"):
        eventually(lambda each=upstream: "(it is empty)" in shown(agent, each)["error"], what="its queue is looked at")  # type: ignore[misc]
        said = r"no longer defined; its queue upstream is removed in \d+ [a-z0-9 ]+ \(it is empty\); define it again .*"
        assert re.fullmatch(said, shown(agent, upstream)["error"])
        assert shown(agent, upstream)["backlog"] == 0
    assert ask(agent, "/metrics").count('state="removing"} 1') == 2
    assert [each["status"] for each in ask(agent, "/api/federation-links")] == ["shutdown"] * 2
    assert ask(agent, "/api/federation-links/state/down") == []
    with pytest.raises(HTTPError, match="409"):
        act(agent, "restart")
    assert there.links_objects() == built

    for exchange in (X, QUORUM):
        there.publish(numbered(5, start=5), exchange=exchange)
    here.bind("l")  # what changed meanwhile is followed
    agent.write_text(defined).reload()
    agent.wait_for("running", link(here), link(here, "quorum"))
    for exchange in (X, QUORUM):
        there.wait_bound("k", "l", exchange=exchange)
    assert times(here.take(10)) == dict.fromkeys(numbered(5, start=5), 2)
    for upstream in ("origin", "quorum"):
        eventually(lambda each=upstream: shown(agent, each)["forwarded"] == 10, what="its counters go on")  # type: ignore[misc]
    assert there.links_objects() == built
    assert [each for each in there.federated_bindings() if each["routing_key"] == "k"] == bound

    agent.cleanup_after = {"empty": 1}
    agent.write({}).reload()
    there.wait_clean()
    wait_none(agent)
    for upstream in ("origin", "quorum"):
        assert agent.history(*link(here, upstream))[-2:] == ["removing", "stopping"]
    assert not [each for each in agent.logged("link changed") if each["status"] == "backoff"]


def test_nothing_is_removed_that_may_be_needed(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Another link takes the queue over; the configuration is refused just then; the agent ends."""
    agent = started(agent_of, here, federated(there), LONG)
    agent.write({}).reload()
    wait_shown(agent, "removing")
    there.publish(numbered(5))
    renamed = {**federated(there), "upstreams": {"renamed": federated(there)["upstreams"]["origin"]}}
    agent.cleanup_after = {"empty": 0}
    agent.write({here.vhost: renamed}).reload()
    agent.wait_for("running", link(here, "renamed"))
    assert here.take(5) == numbered(5)
    eventually(lambda: [each["upstream"] for each in ask(agent, "/api/links")] == ["renamed"], what="one is left")
    assert queue_of(here) in there.links_objects()

    defined, built = agent.path.read_text(), there.links_objects()
    agent.write_text("downstream: [").reload()
    agent.wait_logged("definitions refused, the last good ones stay in force")
    here.delete_exchange()
    wait_shown(agent, "removing", "renamed")
    eventually(lambda: "once definitions can be read again" in shown(agent, "renamed")["error"], what="it waits")
    assert there.links_objects() == built
    here.exchange().bind("k")
    agent.write_text(defined).reload()
    agent.wait_for("running", link(here, "renamed"))
    there.publish(numbered(5))
    assert here.take(5) == numbered(5)
    built = there.links_objects()

    agent.cleanup_after = LONG
    agent.write({}).reload()
    wait_shown(agent, "removing", "renamed")
    assert agent.terminate() == 0
    assert there.links_objects() == built


def test_a_file_that_is_written_slowly_loses_no_messages(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Its first half alone takes effect, as it stays the same for long enough."""
    agent = started(agent_of, here, federated(there), None)
    pause(agent, there)
    there.publish(numbered(200))
    [head, tail] = agent.path.read_text().split("vhosts:", 1)
    with agent.path.open("w") as file:
        file.write(head)
        file.flush()
        wait_shown(agent, "removing")
        there.publish(numbered(50, start=200))
        there.wait_depth(250, queue_of(here))
        file.write(f"vhosts:{tail}")
    wait_shown(agent, "paused")
    act(agent, "resume")
    assert here.take(250) == numbered(250)
    assert len(agent.logged("started")) == 1


def leader_of(there: Site, queue: str, order: str) -> None:
    """Has the leader of a quorum queue suspended or resumed."""
    there.node.eval(
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{there.vhost}">>, queue, <<"{queue}">>)), '
        f"{{Name, _}} = amqqueue:get_pid(Q), sys:{order}(whereis(Name)).",
    )


@pytest.mark.thorough
def test_messages_that_wait_are_kept_for_longer_and_counted(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Also where the leader of a quorum queue doesn't answer: brokers declare such a queue as empty and unused, and
    delete it by force."""
    agent = started(agent_of, here, both(there), {"empty": 0, "waiting": 600})
    pause(agent, there, "origin", "quorum")
    there.publish(numbered(7))
    there.publish(numbered(200), exchange=QUORUM)
    leader_of(there, queue_of(here, QUORUM), "suspend")
    agent.write({}).reload()
    wait_shown(agent, "removing")
    wait_shown(agent, "stopping", "quorum")
    eventually(lambda: shown(agent)["backlog"] == 7, what="what waits is counted")
    assert "(7 messages wait)" in shown(agent)["error"]
    there.publish(numbered(3))
    eventually(lambda: shown(agent)["backlog"] == 10, what="it is looked at again")
    leader_of(there, queue_of(here, QUORUM), "resume")
    eventually(lambda: shown(agent, "quorum")["backlog"] == 200, what="what waits is counted")
    assert shown(agent, "quorum")["status"] == "removing"
    there.wait_depth(200, queue_of(here, QUORUM))
    there.wait_depth(10, queue_of(here))
    agent.cleanup_after = {"empty": 0, "waiting": 1}
    agent.write({}).reload()
    there.wait_clean()
    wait_none(agent)


def test_links_whose_upstream_is_away_when_they_are_removed(
    agent_of: AgentOf, here: Site, there: Site, proxy_to: Callable[[Node | int], Proxy]
) -> None:
    """One that is wanted again while its removal connects keeps its messages, under its name or another. What is left
    of those that aren't is removed once the upstream is back."""
    proxy, names = proxy_to(there.node), ("fed.x", "fed.y")
    for name in names:
        here.exchange(name).queue("k", name=f"q of {name}", exchange=name)
    agent = agent_of(here.node)
    definition = federated(there, uri=there.node.uri(there.vhost, port=proxy.port), **{"reconnect-delay": 1})
    agent.write({here.vhost: definition}).start()
    agent.wait_running(2)

    proxy.refuse()
    proxy.cut()
    agent.wait_for("backoff", *((here.vhost, name, "origin") for name in names))
    for name in names:  # before the removals begin, which don't wait long
        there.publish(numbered(200), exchange=name)
    agent.write({}).reload()
    eventually(lambda: {each["status"] for each in ask(agent, "/api/links")} == {"stopping"}, what="both end")
    proxy.blackhole()
    accepted = proxy.accepted  # none more, as long as it refuses
    proxy.accept()
    eventually(lambda: proxy.accepted > accepted, what="the removal connects")
    wanted = {"fed.x": "origin", "fed.y": "renamed"}
    definition["upstreams"]["renamed"] = definition["upstreams"]["origin"]
    definition["policies"] = {
        name: {"pattern": f"^{name}$", "apply-to": "exchanges", "definition": {"federation-upstream": upstream}}
        for name, upstream in wanted.items()
    }
    agent.write({here.vhost: definition}).reload()

    def starting() -> dict[str, str]:
        return {each["exchange"]: each["upstream"] for each in ask(agent, "/api/links") if each["status"] == "starting"}

    eventually(lambda: starting() == wanted, what="they are wanted again")
    proxy.restore()
    for name in names:
        assert here.take(200, queue=f"q of {name}") == numbered(200)

    agent.wait_for("running", *((here.vhost, name, upstream) for name, upstream in wanted.items()))
    proxy.refuse()
    proxy.cut()
    agent.wait_for("backoff", *((here.vhost, name, upstream) for name, upstream in wanted.items()))
    agent.write({}).reload()
    eventually(lambda: not agent.links(), what="both end")
    assert there.links_objects()
    proxy.accept()
    there.wait_clean()


def test_queues_of_either_type_are_removed_whatever_the_link_says_now_and_other_links_go_on(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    """A classic queue counts nobody who fetched a message as a consumer. Brokers close the connection over a condition
    for the deletion of a quorum queue."""
    types = {"fed.now-quorum": "classic", "fed.now-classic": "quorum", "fed.quorum": "quorum"}
    types |= {"fed.stays": "quorum", "fed.beside": "classic"}  # one of each upstream goes on
    later = types | {"fed.now-quorum": "quorum", "fed.now-classic": "classic"}

    def section(types: Mapping[str, str]) -> dict[str, Any]:
        upstreams = {kind: {"uri": there.uri, "queue-type": kind} for kind in ("classic", "quorum")}
        policies = {
            name: {"pattern": f"^{name}$", "apply-to": "exchanges", "definition": {"federation-upstream": kind}}
            for name, kind in types.items()
        }
        return {"upstreams": upstreams, "policies": policies}

    for name in types:
        here.exchange(name).queue("k", name=name, exchange=name)
    agent = agent_of(here.node)
    agent.cleanup_after = {"empty": 0, "waiting": 1}
    agent.write({here.vhost: section(types)}).start()
    agent.wait_running(5)
    there.publish(numbered(3), exchange="fed.quorum")
    assert here.take(3, queue="fed.quorum") == numbered(3)
    agent.write({here.vhost: section(later)}).reload()
    assert len(agent.wait_logged("link noted", 2)) == 2, "their queues are of another type"
    agent.wait_for("running", *((here.vhost, name, kind) for name, kind in later.items()))
    [paused] = [each["id"] for each in ask(agent, "/api/links") if each["exchange"] == "fed.now-quorum"]
    queues = {name: f"federation: {name} -> {here.node.cluster_name}:{here.vhost}:{name}" for name in types}
    ask(agent, f"/api/links/{paused}/pause", "POST")
    agent.wait_for("paused", (here.vhost, "fed.now-quorum", "quorum"))
    there.wait_unconsumed(queues["fed.now-quorum"])
    there.publish(numbered(20), exchange="fed.now-quorum")
    there.wait_depth(20, queues["fed.now-quorum"])

    del later["fed.now-quorum"]
    agent.write({here.vhost: section(later)}).reload()
    for name in ("fed.now-classic", "fed.quorum"):
        here.delete_exchange(name)
    eventually(
        lambda: queues.keys() & _exchanges_of(there) == {"fed.stays", "fed.beside"}, what="the others are removed"
    )
    agent.wait_running(2)
    for name in ("fed.stays", "fed.beside"):
        there.publish(numbered(5), exchange=name)
        assert here.take(5, queue=name) == numbered(5)
        assert agent.history(here.vhost, name, types[name]) == ["running"]
    assert len(agent.logged("link noted")) == 2


def _exchanges_of(there: Site) -> set[str]:
    """The upstream exchanges of all queues that links keep."""
    return {name.removeprefix("federation: ").split(" -> ")[0] for name in there.links_objects()}
