"""Exchanges of many upstreams, alternate ones, those that the agent or a client declares, and bindings from a file."""

from __future__ import annotations

from typing import Any

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, X, federated, policies, upstreams
from tests.integration.federation.test_api import ask
from tests.integration.federation.test_failures import link
from tests.lab.admin import AdminError
from tests.lab.user_program import numbered
from tests.lab.waiting import eventually


def furnish_chain(here: Site) -> None:
    """`first` takes nothing of these and hands on to `second`, which fills `lost`."""
    here.exchange("second", "fanout").queue("", name="lost", exchange="second")
    here.exchange("first", "direct", arguments={"alternate-exchange": "second"})


def test_a_policy_of_the_broker_beside_the_agents(agent_of: AgentOf, here: Site, there: Site) -> None:
    furnish_chain(here)
    here.exchange().queue("a.#")
    alternate = {"alternate-exchange": "first"}
    here.node.admin.policy(here.vhost, "ae", "^fed", definition=alternate, apply_to="exchanges", priority=9)
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"forward-unrouted": True})}).start()
    agent.wait_for("running", link(here))
    there.wait_bound("#", "a.#")
    there.publish(["bound"], "a.b")
    there.publish(["unbound"], "b")
    assert here.take(1) == ["bound"]
    assert here.take(1, queue="lost") == ["unbound"]
    here.node.admin.delete("policies", here.vhost, "ae")
    there.publish(["bound", "too"], "a")
    assert here.take(2) == ["bound", "too"]
    assert agent.history(*link(here)) == ["running"]


def test_an_argument_and_one_that_is_missing(agent_of: AgentOf, here: Site, there: Site) -> None:
    furnish_chain(here)
    for name, alternate in (("fed.chain", "first"), ("fed.nowhere", "no-such-exchange")):
        here.exchange(name, "fanout", arguments={"alternate-exchange": alternate})
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"forward-unrouted": True})}).start()
    agent.wait_running(2)
    for name in ("fed.nowhere", "fed.chain"):
        there.publish(numbered(10), exchange=name)
    assert here.take(10, queue="lost") == numbered(10)
    here.queue("", name="late", exchange="fed.nowhere")
    there.publish(["m"], exchange="fed.nowhere")
    assert here.take(1, queue="late") == ["m"]
    assert agent.history(*link(here, "origin"))[1:] == []


def test_without_forward_unrouted_only_bound_keys_come(agent_of: AgentOf, here: Site, there: Site) -> None:
    furnish_chain(here)
    here.exchange(arguments={"alternate-exchange": "first"}).queue("a")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", link(here))
    there.publish(["unbound"], "b")
    there.publish(["bound"], "a")
    assert here.take(1) == ["bound"]
    assert here.take(0, queue="lost") == []


def test_what_can_not_ask_for_everything_is_invalid(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange(kind="direct").exchange("fed.topic").queue("k", exchange="fed.topic")
    agent = agent_of(here.node).write({here.vhost: federated(there, **{"forward-unrouted": True})}).start()
    agent.wait_for("invalid", link(here))
    assert "forward-unrouted" in agent.links()[link(here)]["error"]
    agent.wait_for("running", (here.vhost, "fed.topic", "origin"))


def test_exchanges_of_the_configuration_are_declared(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange("standing", "fanout").queue("", name="of standing", exchange="standing")
    exchanges: dict[str, Any] = {
        "declared": {"type": "direct", "upstream-set": "both", "arguments": {"alternate-exchange": "ae"}},
        "standing": {"type": "topic", "upstream-set": "both"},
        "odd": {"type": "x-random"},
    }
    sets = {"both": [{"upstream": "origin"}, {"upstream": "origin", "exchange": "elsewhere"}]}
    beside = {"upstreams": upstreams(there), "upstream-sets": sets, "exchanges": exchanges}
    nowhere = {"exchanges": {"nowhere": {"type": "topic"}}}
    agent = agent_of(here.node).write({here.vhost: beside, "no-such-vhost": nowhere}).start()

    def declared() -> dict[str, Any]:
        found: dict[str, Any] = here.node.admin.get("exchanges", here.vhost, "declared")
        return found

    eventually(declared, what="the exchange is declared", ignoring=AdminError)
    assert (declared()["type"], declared()["durable"]) == ("direct", True)
    assert declared()["arguments"] == {"alternate-exchange": "ae"}
    here.queue("k", name="q", exchange="declared")
    there.wait_bound("k", exchange="declared")
    there.publish(["m"], exchange="declared")
    assert here.take(1) == ["m"]
    there.publish(["n"], exchange="standing")
    assert here.take(1, queue="of standing") == ["n"]
    notes = [entry["note"] for entry in agent.logged("definitions noted")]
    assert any("'odd'" in note and "x-random" in note for note in notes)
    assert any("no-such-vhost" in note for note in notes)
    assert len(notes) == len(set(notes))


def test_a_client_names_the_set_as_in_the_2x_days(agent_of: AgentOf, here: Site, there: Site) -> None:
    beside = {"upstreams": upstreams(there), "upstream-sets": {"sites": [{"upstream": "origin"}]}}
    agent = agent_of(here.node).write({here.vhost: beside}).start()
    agent.wait_logged("started")
    here.exchange("old", "topic", arguments={"upstream-set": "sites"}).queue("k", exchange="old")
    here.exchange("older", "fanout", arguments={"x-upstream-set": "sites"}).queue("", exchange="older")
    agent.wait_running(2)
    there.wait_bound("k", exchange="old")
    there.publish(["m"], exchange="old")
    assert here.take(1) == ["m"]
    assert there.node.admin.get("exchanges", there.vhost, "old")["arguments"] == {}
    here.delete_exchange("old")
    agent.wait_running(1)


def test_static_bindings_where_there_is_no_http_api(agent_of: AgentOf, here: Site, there: Site) -> None:
    beside: dict[str, Any] = {
        "upstreams": upstreams(there),
        "exchanges": {
            X: {"type": "topic", "upstream-set": "all"},
            "typed": {"type": "headers", "upstream-set": "all"},
        },
        "bindings": {X: [{"key": "orders.#"}], "typed": [{"key": "", "arguments": {"x-match": "all", "type": "read"}}]},
    }
    agent = agent_of(here.node, management=False).write({here.vhost: beside}).start()
    agent.wait_running(2)
    here.queue("#")
    there.wait_bound("orders.#")
    [typed] = there.federated_bindings("typed")
    assert {key: typed["arguments"][key] for key in ("x-match", "type")} == {"x-match": "all", "type": "read"}
    there.publish(["unbound"], "k")
    there.publish(["m"], "orders.paid")
    assert here.take(1) == ["m"]
    beside["bindings"][X].append({"key": "k"})
    agent.write({here.vhost: beside})
    there.wait_bound("orders.#", "k")
    assert agent.history(*link(here)) == ["running"]


def test_policies_and_patterns_of_the_agent_are_its_own(agent_of: AgentOf, here: Site, there: Site) -> None:
    """`amq.` exchanges may be federated, and need no canary, as nobody can delete them. Internal ones and the default
    never are."""
    here.queue("k", exchange="amq.topic").exchange("inside", internal=True)
    everything = {"all": policies()["federate"] | {"pattern": ".*"}}
    definition = {"upstreams": upstreams(there), "policies": everything}
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_for("running", (here.vhost, "amq.topic", "origin"))
    there.publish(["m"], exchange="amq.topic")
    assert here.take(1) == ["m"]
    assert not {"", "inside"} & {name for _, name, _ in agent.links()}
    assert there.canaries() == []
    [shown] = [each for each in ask(agent, "/api/links") if each["exchange"] == "amq.topic"]
    assert shown["error"] is None


def test_one_upstream_and_several_downstreams_and_back(
    agent_of: AgentOf, here: Site, there: Site, site_on: SiteOn
) -> None:
    """Several upstreams into one exchange; several exchanges from one upstream exchange."""
    third = site_on(there.node)
    here.exchange().queue("k").exchange("fed.second").queue("k", name="second", exchange="fed.second")
    definition = federated(there, third)
    for upstream in definition["upstreams"].values():
        upstream["exchange"] = "one.for.all"
    agent = agent_of(here.node).write({here.vhost: definition}).start()
    agent.wait_running(4)
    for site in (there, third):
        site.wait_bound("k", "k", exchange="one.for.all")
        site.publish(["m"], exchange="one.for.all")
    assert here.take(2) == ["m", "m"]
    assert here.take(2, queue="second") == ["m", "m"]
    assert X not in {each["name"] for each in there.node.admin.get("exchanges", there.vhost)}
