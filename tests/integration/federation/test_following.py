"""Links follow definitions, exchanges, bindings and brokers; only those concerned are touched."""

import time

from tests.acceptance.command import federation_agent
from tests.conftest import Borrowed
from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Q, Site, X, federated, policies, upstreams
from tests.integration.status.asking import get
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually

REFUSED = "definitions refused, the last good ones stay in force"
IN_FORCE = "all definitions are in force again"


def link(site: Site, name: str = X, upstream: str = "origin") -> tuple[str, str, str]:
    return site.vhost, name, upstream


def test_a_link_carries_what_is_bound_and_leaves_nothing_when_its_policy_goes(
    agent_of: AgentOf, here: Site, there: Site
) -> None:
    here.exchange().queue("a.*", "a.b")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("a.*", "a.b")
    assert there.links_objects() == [
        name := f"federation: {X} -> {here.node.cluster_name}:{here.vhost}:{X}",
        f"{name} A",
    ]
    there.publish(numbered(100), "a.b")
    there.publish(["unbound"], "b")
    assert here.take(100) == numbered(100)

    agent.write({here.vhost: {"upstreams": upstreams(there)}})
    there.wait_clean()
    assert agent.terminate() == 0


def test_bindings_are_followed_both_ways_and_quickly(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().exchange("further", "fanout").queue()
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    took: list[float] = []
    for number in range(10):
        here.bind(f"k{number}")
        begun = time.monotonic()
        there.wait_bound(*(f"k{each}" for each in range(number + 1)))
        took.append(time.monotonic() - begun)
    assert min(took) < 1, f"a look at the HTTP API and the way of a binding, on a busy machine mostly more: {took}"
    here.queue("k0", name="second")
    here.node.admin.bind(here.vhost, X, "further", "k1", to_exchange=True)
    here.node.admin.bind(here.vhost, X, Q, "k1", arguments={"n": 1})
    there.wait_bound("k1", *(f"k{number}" for number in range(10)))
    here.unbind("k0")
    here.unbind("k9")
    there.wait_bound("k1", *(f"k{number}" for number in range(9)))
    here.delete_queue("second")
    here.delete_queue(Q)
    there.wait_bound("k1")
    assert agent.history(*link(here)) == ["running"]


def test_exchanges_come_and_go(agent_of: AgentOf, here: Site, there: Site) -> None:
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_logged("started")
    here.exchange("fed.one").exchange("other")
    agent.wait_for("running", link(here, "fed.one"))
    here.exchange("fed.two").queue("k", exchange="fed.two")
    there.wait_bound("k", exchange="fed.two")
    there.publish(["m"], exchange="fed.two")
    assert here.take(1) == ["m"]
    here.delete_exchange("fed.one")
    eventually(lambda: not [name for name in there.links_objects() if "fed.one" in name], what="fed.one is gone")
    assert agent.history(*link(here, "fed.two")) == ["running"]

    # Messages came through the other one, so that it is gone is shown until somebody says that this is right.
    here.delete_exchange("fed.two")
    eventually(lambda: get(agent, "/api/links") == [], what="fed.two is gone")
    [cause] = get(agent, "/api/causes")["causes"]
    assert (cause["side"], cause["trouble"], cause["names"]) == (
        "downstream", "exchange deleted", [f"{here.vhost}/fed.two"],
    )  # fmt: skip
    url = ("--url", f"http://127.0.0.1:{agent.port}")
    assert federation_agent("status", *url).status == 1
    for named in (cause["links"][0], *cause["names"]):
        described = federation_agent("describe", named, *url)
        assert described.status == 5
        assert "exchange 'fed.two' in vhost" in described.err
        assert f"run `federation-agent forget {cause['links'][0]}`" in described.err
    assert [federation_agent("forget", *cause["links"], *url).status for _ in range(2)] == [0, 5]
    assert federation_agent("status", *url).status == 0
    assert "was deleted" not in federation_agent("describe", cause["links"][0], *url).err


def test_definitions_change_and_only_what_they_concern(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().exchange("fed.y").queue("k")
    first = {"one": {"uri": there.uri}, "two": {"uri": there.uri, "exchange": "fed.elsewhere"}}
    agent = agent_of(here.node).write({here.vhost: {"upstreams": first, "policies": policies()}}).start()
    agent.wait_running(4)
    second = {"one": first["one"], "two": first["two"] | {"max-hops": 3}, "three": {"uri": there.uri, "exchange": "n"}}
    agent.write({here.vhost: {"upstreams": second, "policies": policies()}})
    agent.wait_for("running", link(here, X, "three"), link(here, "fed.y", "three"))
    eventually(lambda: agent.history(*link(here, X, "two"))[-3:] == ["running", "starting", "running"], what="restart")
    assert agent.history(*link(here, X, "one")) == ["running"]
    [bound] = there.federated_bindings("fed.elsewhere")
    assert bound["arguments"]["x-bound-from"][0]["hops"] == 3
    there.publish(["m"], exchange="fed.elsewhere")
    assert here.take(1) == ["m"]

    priority = {"federate": policies()["federate"], "rather": policies()["federate"] | {"priority": 1}}
    priority["rather"]["definition"] = {"federation-upstream-pattern": "^t"}
    agent.write({here.vhost: {"upstreams": second, "policies": priority}})
    eventually(lambda: link(here, X, "one") not in agent.links(), what="link one is gone")
    eventually(lambda: not there.federated_bindings(X), what="nothing is bound to the first exchange")
    assert there.federated_bindings("fed.elsewhere")
    assert agent.history(*link(here, X, "three")) == ["running"]
    agent.write({here.vhost: {"upstreams": {"two": second["two"]}, "policies": priority}})
    eventually(lambda: [upstream for _, _, upstream in agent.links()] == ["two", "two"], what="only two is left")


def test_sets_change_and_go(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    policy = {"federate": policies()["federate"] | {"definition": {"federation-upstream-set": "both"}}}
    beside = {"upstreams": {"one": {"uri": there.uri}, "two": {"uri": there.uri, "exchange": "fed.two"}}}
    first = beside | {"policies": policy, "upstream-sets": {"both": [{"upstream": "one"}, {"upstream": "two"}]}}
    agent = agent_of(here.node).write({here.vhost: first}).start()
    agent.wait_running(2)
    changed = [{"upstream": "one"}, {"upstream": "two", "exchange": "fed.three", "max-hops": 2}]
    agent.write({here.vhost: first | {"upstream-sets": {"both": changed}}})
    there.wait_bound("k", exchange="fed.three")
    there.wait_bound(exchange="fed.two")
    assert agent.history(*link(here, X, "one")) == ["running"]
    policy["federate"]["definition"] = {"federation-upstream": "one"}
    agent.write({here.vhost: beside | {"policies": policy}})
    there.wait_bound(exchange="fed.three")
    there.wait_bound("k")
    assert agent.history(*link(here, X, "one")) == ["running"]


def test_the_upstream_exchange_is_deleted_and_made_anew(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue(*(f"k{number}" for number in range(30)))
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.delete_exchange()
    there.wait_bound(*(f"k{number}" for number in range(30)))
    there.delete_exchange()
    there.exchange()
    there.wait_bound(*(f"k{number}" for number in range(30)))
    there.publish(["m"], "k7")
    assert here.take(1) == ["m"]


def test_the_upstream_queue_is_deleted(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().queue("k")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.delete_queue(there.links_objects()[0])
    eventually(lambda: agent.history(*link(here)).count("running") == 2, what="the link runs again")
    there.publish(["m"])
    assert here.take(1) == ["m"]
    [broken] = [entry for entry in agent.logged("link changed") if entry["status"] == "backoff"]
    assert "was deleted" in broken["error"]


def test_a_global_parameter_of_the_broker_defines_links(
    agent_of: AgentOf, borrowed: Borrowed, site_on: SiteOn, there: Site
) -> None:
    here = site_on(borrowed()).exchange().queue("k")
    admin = here.node.admin
    agent = agent_of(here.node).write(definitions={"management": True}).start()
    agent.wait_logged("started")
    try:
        admin.global_parameter("federation-agent", {"vhosts": {here.vhost: federated(there)}})
        agent.wait_for("running", link(here))
        there.publish(["m"])
        assert here.take(1) == ["m"]
        admin.global_parameter("federation-agent", {"vhosts": {here.vhost: {"upstreamz": {}}}})
        [refused] = agent.wait_logged(REFUSED)
        assert "did you mean 'upstreams'" in refused["error"]
        here.bind("l").exchange("fed.new")
        there.wait_bound("k", "l")
        agent.wait_for("running", link(here, "fed.new"))
        admin.global_parameter("federation-agent", {"vhosts": {here.vhost: federated(there)}})
        agent.wait_logged(IN_FORCE)
        assert agent.history(*link(here)) == ["running"]
        assert len(agent.logged(REFUSED)) == 1
    finally:
        admin.delete("global-parameters", "federation-agent")
    there.wait_clean()


def test_a_bad_file_changes_nothing_and_stops_no_other_source(
    agent_of: AgentOf, borrowed: Borrowed, site_on: SiteOn, there: Site
) -> None:
    here = site_on(borrowed()).exchange().queue("k")
    admin = here.node.admin
    good = {here.vhost: federated(there)}
    agent = agent_of(here.node).write(good, definitions={"management": True}).start()
    agent.wait_for("running", link(here))
    agent.write({here.vhost: {"upstreamz": {}}}, definitions={"management": True})
    [refused] = agent.wait_logged(REFUSED)
    assert "did you mean 'upstreams'" in refused["error"]
    more = {"upstreams": {"more": {"uri": there.uri, "exchange": "elsewhere"}}}
    try:
        admin.global_parameter("federation-agent", {"vhosts": {here.vhost: more}})
        agent.wait_for("running", link(here, upstream="more"))
        here.bind("l")
        there.wait_bound("k", "l")
        taken = {here.vhost: {"upstreams": federated(there)["upstreams"] | more["upstreams"], "policies": policies()}}
        agent.write(taken, definitions={"management": True})
        refused = agent.wait_logged(REFUSED, 2)[-1]
        assert "upstream 'more' in vhost" in refused["error"]
        assert "global parameter 'federation-agent'" in refused["error"]
        assert f"{agent.path}:" in refused["error"]
    finally:
        admin.delete("global-parameters", "federation-agent")  # the name has moved: both links stay as they are
    agent.wait_logged(IN_FORCE)
    there.publish(["m"], "l")
    assert here.take(1) == ["m"]
    assert agent.history(*link(here)) == agent.history(*link(here, upstream="more")) == ["running"]
    assert len(agent.logged(REFUSED)) == 2


def test_several_vhosts_of_one_broker(agent_of: AgentOf, here: Site, site_on: SiteOn) -> None:
    """Empty hosts: the downstream itself."""
    first, second = here, site_on(here.node)
    for site in (first, second):
        site.exchange().queue("#")
    uris = {site.vhost: {"upstreams": {"origin": {"uri": f"amqp:///{site.vhost}"}}} for site in (first, second)}
    shared = {"policies": policies()}
    agent = agent_of(here.node).write(
        {first.vhost: uris[second.vhost] | shared, second.vhost: uris[first.vhost] | shared}
    )
    agent.start().wait_running(2)
    first.publish(numbered(10))
    assert second.take(10) == numbered(10)
    assert first.take(10) == numbered(10)


def test_a_vhost_out_of_sight_loses_its_links_but_no_queue(agent_of: AgentOf, here: Site, there: Site) -> None:
    admin, user = here.node.admin, f"user-{here.vhost}"
    here.exchange().queue("k")
    admin.user(user, "p", "policymaker")
    admin.permissions(here.vhost, user)
    agent = agent_of(here.node, management_uri=here.node.management_uri(user, "p"))
    agent.write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    admin.delete("permissions", here.vhost, user)
    eventually(lambda: agent.history(*link(here))[-1] == "stopping", what="the link stops")  # at the next poll
    assert agent.terminate() == 0
    assert there.links_objects()
