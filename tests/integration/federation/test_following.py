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


def test_a_link_from_its_first_message_to_the_end_of_its_policy(agent_of: AgentOf, here: Site, there: Site) -> None:
    """It carries what is bound, follows bindings both ways and quickly, survives the loss of its queue, and leaves
    nothing."""
    here.exchange().queue("a.*", "a.b").exchange("further", "fanout")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("a.*", "a.b")
    name = f"federation: {X} -> {here.node.cluster_name}:{here.vhost}:{X}"
    assert there.links_objects() == [name, f"{name} A"]
    there.publish(numbered(100), "a.b")
    there.publish(["unbound"], "b")
    assert here.take(100) == numbered(100)

    took: list[float] = []
    for number in range(10):
        here.bind(f"k{number}")
        begun = time.monotonic()
        there.wait_bound("a.*", "a.b", *(f"k{each}" for each in range(number + 1)))
        took.append(time.monotonic() - begun)
        if number >= 4 and min(took) < 1:
            break
    assert min(took) < 1, f"a look at the HTTP API and the way of a binding, on a busy machine mostly more: {took}"
    here.queue("k0", name="second")
    here.node.admin.bind(here.vhost, X, "further", "k1", to_exchange=True)
    here.node.admin.bind(here.vhost, X, Q, "k1", arguments={"n": 1})
    there.wait_bound("a.*", "a.b", "k1", *(f"k{each}" for each in range(len(took))))
    here.unbind("k0")
    here.unbind(f"k{number}")
    there.wait_bound("a.*", "a.b", "k1", *(f"k{each}" for each in range(number)))
    here.delete_queue("second")
    here.delete_queue(Q)
    there.wait_bound("k1")
    assert agent.history(*link(here)) == ["running"]

    here.queue("k1")
    there.delete_queue(name)
    eventually(lambda: agent.history(*link(here)).count("running") == 2, what="the link runs again")
    there.publish(["m"], "k1")
    assert here.take(1) == ["m"]
    [broken] = [entry for entry in agent.logged("link changed") if entry["status"] == "backoff"]
    assert "was deleted" in broken["error"]

    agent.write({here.vhost: {"upstreams": upstreams(there)}}).reload()
    there.wait_clean()
    assert agent.terminate() == 0


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


def test_definitions_and_sets_change_and_only_what_they_concern(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange().exchange("fed.y").queue("k")
    first = {"one": {"uri": there.uri}, "two": {"uri": there.uri, "exchange": "fed.elsewhere"}}
    agent = agent_of(here.node).write({here.vhost: {"upstreams": first, "policies": policies()}}).start()
    agent.wait_running(4)
    second = {"one": first["one"], "two": first["two"] | {"max-hops": 3}, "three": {"uri": there.uri, "exchange": "n"}}
    agent.write({here.vhost: {"upstreams": second, "policies": policies()}}).reload()
    agent.wait_for("running", link(here, X, "three"), link(here, "fed.y", "three"))
    eventually(lambda: agent.history(*link(here, X, "two"))[-3:] == ["running", "starting", "running"], what="restart")
    assert agent.history(*link(here, X, "one")) == ["running"]
    [bound] = there.federated_bindings("fed.elsewhere")
    assert bound["arguments"]["x-bound-from"][0]["hops"] == 3
    there.publish(["m"], exchange="fed.elsewhere")
    assert here.take(1) == ["m"]

    priority = {"federate": policies()["federate"], "rather": policies()["federate"] | {"priority": 1}}
    priority["rather"]["definition"] = {"federation-upstream-pattern": "^t"}
    agent.write({here.vhost: {"upstreams": second, "policies": priority}}).reload()
    eventually(lambda: link(here, X, "one") not in agent.links(), what="link one is gone")
    eventually(lambda: not there.federated_bindings(X), what="nothing is bound to the first exchange")
    assert there.federated_bindings("fed.elsewhere")
    assert agent.history(*link(here, X, "three")) == ["running"]
    agent.write({here.vhost: {"upstreams": {"two": second["two"]}, "policies": priority}}).reload()
    eventually(lambda: [upstream for _, _, upstream in agent.links()] == ["two", "two"], what="only two is left")

    policy = {"federate": policies()["federate"] | {"definition": {"federation-upstream-set": "both"}}}
    by_set = {"upstreams": first, "policies": policy}
    agent.write({here.vhost: by_set | {"upstream-sets": {"both": [{"upstream": "one"}, {"upstream": "two"}]}}}).reload()
    agent.wait_for("running", link(here, X, "one"), link(here, X, "two"))
    ran = agent.history(*link(here, X, "one"))
    changed = [{"upstream": "one"}, {"upstream": "two", "exchange": "fed.third", "max-hops": 2}]
    agent.write({here.vhost: by_set | {"upstream-sets": {"both": changed}}}).reload()
    there.wait_bound("k", exchange="fed.third")
    there.wait_bound(exchange="fed.elsewhere")
    policy["federate"]["definition"] = {"federation-upstream": "one"}
    agent.write({here.vhost: by_set}).reload()
    there.wait_bound(exchange="fed.third")
    there.wait_bound("k")
    assert agent.history(*link(here, X, "one")) == ran


def test_a_bad_source_changes_nothing_and_stops_no_other(
    agent_of: AgentOf, borrowed: Borrowed, site_on: SiteOn, there: Site
) -> None:
    """Links are defined by the file and by a global parameter of the broker. What can't be read of one stays in force;
    what both define is refused with both places."""
    here = site_on(borrowed()).exchange().queue("k")
    admin, both = here.node.admin, {"definitions": {"management": True}}
    ours, theirs = link(here), link(here, upstream="more")
    more = {"upstreams": {"more": {"uri": there.uri, "exchange": "elsewhere"}}}
    agent = agent_of(here.node).write({here.vhost: federated(there)}, **both).start()
    agent.wait_for("running", ours)
    try:
        admin.global_parameter("federation-agent", {"vhosts": {here.vhost: more}})
        agent.wait_for("running", theirs)
        admin.global_parameter("federation-agent", {"vhosts": {here.vhost: {"upstreamz": {}}}})
        [refused] = agent.wait_logged(REFUSED)
        assert "did you mean 'upstreams'" in refused["error"]
        here.bind("l").exchange("fed.new")
        there.wait_bound("k", "l")
        there.wait_bound("k", "l", exchange="elsewhere")
        agent.wait_for("running", link(here, "fed.new"), link(here, "fed.new", "more"))
        admin.global_parameter("federation-agent", {"vhosts": {here.vhost: more}})
        agent.wait_logged(IN_FORCE)

        agent.write({here.vhost: {"upstreamz": {}}}, **both).reload()
        refused = agent.wait_logged(REFUSED, 2)[-1]
        assert "did you mean 'upstreams'" in refused["error"]
        third = {"third": {"uri": there.uri, "exchange": "further"}}
        admin.global_parameter("federation-agent", {"vhosts": {here.vhost: {"upstreams": more["upstreams"] | third}}})
        agent.wait_for("running", link(here, upstream="third"))
        taken = {"upstreams": federated(there)["upstreams"] | more["upstreams"], "policies": policies()}
        agent.write({here.vhost: taken}, **both).reload()
        refused = agent.wait_logged(REFUSED, 3)[-1]
        assert "upstream 'more' in vhost" in refused["error"]
        assert "global parameter 'federation-agent'" in refused["error"]
        assert f"{agent.path}:" in refused["error"]
    finally:
        admin.delete("global-parameters", "federation-agent")  # the name has moved: both links stay as they are
    agent.wait_logged(IN_FORCE, 2)
    eventually(lambda: link(here, upstream="third") not in agent.links(), what="what only the parameter defined ends")
    there.wait_bound(exchange="further")
    there.publish(["m"], "l")
    assert here.take(1) == ["m"]
    assert agent.history(*ours) == agent.history(*theirs) == ["running"]
    assert len(agent.logged(REFUSED)) == 3


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
    agent.reload()  # no event reports it, and polls are seldom
    eventually(lambda: agent.history(*link(here))[-1] == "stopping", what="the link stops")
    assert agent.terminate() == 0
    assert there.links_objects()
