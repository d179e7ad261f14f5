"""What `plan` says of links of exchanges, on brokers of this machine's release."""

from collections.abc import Callable
from typing import Any

import pytest

from agent.core.links.plan import Outlook
from agent.core.model import ExchangeLink
from tests.conftest import Borrowed
from tests.integration.runtime.planning import (
    FEDERATE,
    ORIGIN,
    Naming,
    Pair,
    of_vhost,
    only_link,
    snapshot,
    told,
    wait_for_consumer,
    wait_until_left,
)
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.proxy import Proxy

ProxyTo = Callable[[Node], Proxy]


async def test_a_fresh_upstream_gets_everything_and_looking_changes_nothing(pair: Pair) -> None:
    admin, vhost = pair.here.admin, pair.vhost
    admin.exchange(vhost, "x")
    admin.exchange(vhost, "further", "fanout")
    for queue in ("q", "r"):
        admin.queue(vhost, queue)
        admin.bind(vhost, "x", queue, "a.#")
    admin.bind(vhost, "x", "q", "b")
    admin.bind(vhost, "x", "further", "b", to_exchange=True)
    admin.bind(vhost, "x", "q", "b", arguments={"k": 1})
    before = snapshot(pair.here, vhost), snapshot(pair.there, vhost)

    found = await pair.plan({**pair.origin(), **FEDERATE})

    planned = only_link(found, vhost)
    assert (planned.outlook, planned.reason, planned.link.policy) == (Outlook.RUN, "", "federate")
    assert told(planned.actions) == [
        ("create", "exchange", "x"),
        ("create", "queue", pair.queue),
        ("create", "exchange", f"{pair.queue} A"),
        ("bind", "binding", "a.#"),
        ("bind", "binding", "b"),
        ("bind", "binding", "b"),
        ("create", "exchange", f"federation-agent: notices when x is deleted ({pair.queue})"),
    ]
    assert planned.bindings == 3
    assert {(action.broker, action.vhost) for action in planned.actions} == {
        (f"amqp://127.0.0.1:{pair.there.amqp_port}/{vhost}", vhost)
    }
    assert found.reading.cluster == pair.here.cluster_name
    assert found.problems == ()
    assert (snapshot(pair.here, vhost), snapshot(pair.there, vhost)) == before
    wait_until_left(pair.here, pair.there)


async def test_names_tell_vhosts_and_exchanges_that_differ(pair: Pair, name: Naming) -> None:
    pair.here.admin.exchange(pair.vhost, "x")
    with pair.there.admin.temporary_vhost(name("other")) as other:
        pair.there.admin.exchange(other, "elsewhere")
        origin = pair.origin(uri=pair.there.uri(other), exchange="elsewhere")
        planned = await pair.plan_link({**origin, **FEDERATE})
    queue = f"federation: elsewhere -> {pair.here.cluster_name}:{pair.vhost}:x"
    assert told(planned.actions)[:2] == [("keep", "exchange", "elsewhere"), ("create", "queue", queue)]


async def test_a_policy_of_the_configuration_goes_along_with_another_on_the_broker(pair: Pair) -> None:
    admin = pair.here.admin
    admin.exchange(pair.vhost, "x")
    alternate = {"alternate-exchange": "amq.fanout"}
    admin.policy(pair.vhost, "ae", "^x", definition=alternate, apply_to="exchanges", priority=99)
    planned = await pair.plan_link({**pair.origin(), **FEDERATE})
    assert (planned.outlook, planned.link.policy) == (Outlook.RUN, "federate")
    assert admin.get("exchanges", pair.vhost, "x")["policy"] == "ae"


@pytest.mark.parametrize("argument", ["upstream-set", "x-upstream-set"])
async def test_a_client_may_name_the_set_as_in_the_2x_days(pair: Pair, argument: str) -> None:
    pair.here.admin.exchange(pair.vhost, "declared", "direct", arguments={argument: "sites"})
    pair.here.admin.exchange(pair.vhost, "lost", "direct", arguments={argument: "sties"})
    sets = {"upstream-sets": {"sites": [{"upstream": ORIGIN, "exchange": "there"}]}}
    found = await pair.plan({**pair.origin(), **sets})
    planned = only_link(found, pair.vhost)
    assert (planned.link.name, planned.link.remote_name) == ("declared", "there")
    assert planned.link.policy == f"argument {argument}"
    [problem] = found.problems
    assert "upstream set 'sties'" in problem.message
    assert "did you mean 'sites'?" in problem.message


async def test_exchanges_of_the_configuration_are_held_against_what_stands(pair: Pair) -> None:
    pair.here.admin.exchange(pair.vhost, "same", "topic")
    pair.here.admin.exchange(pair.vhost, "other", "fanout")
    declared = {name: {"type": "topic", "upstream-set": "all"} for name in ("same", "other", "new")}
    found = await pair.plan({**pair.origin(), "exchanges": declared})
    assert {action.name: (str(action.verb), "differ" in action.why) for action in found.plan.downstream} == {
        "same": ("keep", False),
        "other": ("keep", True),
        "new": ("create", False),
    }
    links = [planned.link for planned in of_vhost(found, pair.vhost)]
    assert {link.name: link.exchange.type for link in links if isinstance(link, ExchangeLink)} == {
        "same": "topic",
        "other": "fanout",
        "new": "topic",
    }


async def test_exchanges_are_seen_in_a_vhost_without_upstreams_too(pair: Pair) -> None:
    pair.here.admin.exchange(pair.vhost, "stands")
    found = await pair.plan({"exchanges": {"stands": {"type": "topic"}}})
    assert told(found.plan.downstream) == [("keep", "exchange", "stands")]


@pytest.mark.thorough
async def test_many_federated_exchanges_and_their_bindings(pair: Pair) -> None:
    names = [f"x{number:02}" for number in range(30)]
    exchange: dict[str, Any] = {"vhost": pair.vhost, "type": "topic", "durable": True, "auto_delete": False}
    binding = {"vhost": pair.vhost, "destination": "q", "destination_type": "queue", "arguments": {}}
    pair.here.admin.queue(pair.vhost, "q")
    body = {
        "exchanges": [exchange | {"name": name, "internal": False, "arguments": {}} for name in names],
        "bindings": [binding | {"source": name, "routing_key": f"key of {name}"} for name in names],
    }
    pair.here.admin.post("definitions", body=body)
    found = await pair.plan({**pair.origin(), **FEDERATE})
    bound = {
        planned.link.name: [action.name for action in planned.actions if action.verb == "bind"]
        for planned in of_vhost(found, pair.vhost)
    }
    assert bound == {name: [f"key of {name}"] for name in names}


async def test_a_vhost_that_is_not_there_is_told_and_stops_nothing_else(pair: Pair, name: Naming) -> None:
    pair.here.admin.exchange(pair.vhost, "x")
    missing = name("missing")
    declared = {"exchanges": {"x": {"type": "topic", "upstream-set": "all"}}}
    vhosts = {pair.vhost: {**pair.origin(), **FEDERATE}, missing: {**pair.origin(), **declared}}
    found = await pair.plan({}, vhosts=vhosts)
    assert only_link(found, pair.vhost).outlook is Outlook.RUN
    [problem] = found.problems
    assert problem.message.startswith(f"vhost '{missing}' does not exist on the downstream")
    assert str(problem.place).startswith(f"{pair.directory}/agent.yaml:")


async def test_the_downstream_itself_in_another_vhost(pair: Pair, name: Naming) -> None:
    with pair.here.admin.temporary_vhost(name("other")) as other:
        pair.here.admin.exchange(pair.vhost, "x")
        pair.here.admin.exchange(other, "x")
        planned = await pair.plan_link({**pair.origin(uri=f"amqp:///{other}"), **FEDERATE})
    assert planned.outlook is Outlook.RUN
    assert told(planned.actions)[:2] == [("keep", "exchange", "x"), ("create", "queue", f"{pair.queue}:{pair.vhost}:x")]
    assert {action.vhost for action in planned.actions} == {other}


async def test_the_downstream_itself_by_any_of_its_addresses(pair: Pair, proxy_to: ProxyTo) -> None:
    pair.here.admin.exchange(pair.vhost, "x")
    dead = proxy_to(pair.here)
    dead.refuse()
    addresses = [f"amqp://127.0.0.1:{dead.port}", pair.downstream["uri"]]
    of_itself = pair.origin(uri="amqp://", exchange="y")
    planned = await pair.plan_link({**of_itself, **FEDERATE}, downstream=pair.downstream | {"uri": addresses})
    assert planned.outlook is Outlook.RUN
    assert planned.broker == f"amqp://127.0.0.1:{pair.here.amqp_port}/{pair.vhost}"


async def test_of_several_addresses_the_one_that_answers_is_told(pair: Pair, proxy_to: ProxyTo) -> None:
    pair.here.admin.exchange(pair.vhost, "x")
    dead = proxy_to(pair.there)
    dead.refuse()
    uris = [pair.there.uri(pair.vhost, port=dead.port), pair.there.uri(pair.vhost)]
    planned = await pair.plan_link({**pair.origin(uri=uris), **FEDERATE})
    assert planned.outlook is Outlook.RUN
    expected = f"amqp://127.0.0.1:{pair.there.amqp_port}/{pair.vhost}"
    assert {planned.broker, *(action.broker for action in planned.actions)} == {expected}


@pytest.mark.parametrize(
    ("fault", "outlook", "reason"),
    [
        ("password", Outlook.INVALID, "login refused for user 'guest': check user and password in its URI"),
        ("vhost", Outlook.INVALID, "vhost 'nowhere' does not exist"),
        ("port", Outlook.BACKOFF, "connection refused"),
    ],
)
async def test_an_upstream_that_lets_nobody_in(
    pair: Pair, proxy_to: ProxyTo, fault: str, outlook: Outlook, reason: str
) -> None:
    pair.here.admin.exchange(pair.vhost, "x")
    dead = proxy_to(pair.there)
    dead.refuse()
    uri = {
        "password": pair.there.uri(pair.vhost, password="sentinel"),
        "vhost": pair.there.uri("nowhere"),
        "port": pair.there.uri(pair.vhost, port=dead.port),
    }[fault]
    planned = await pair.plan_link({**pair.origin(uri=uri), **FEDERATE})
    assert (planned.outlook, planned.actions) == (outlook, ())
    assert planned.reason.startswith("upstream origin 127.0.0.1:")
    assert reason in planned.reason
    assert "sentinel" not in planned.reason


async def test_another_consumer_makes_it_wait(pair: Pair, borrowed: Borrowed) -> None:
    """Whoever serves the queue may be of another cluster with the same name, which only the consumer tells."""
    pair.here.admin.exchange(pair.vhost, "x")
    node = borrowed(plugins=NATIVE_PLUGINS)
    admin = node.admin
    with admin.temporary_vhost(pair.vhost):
        admin.put("cluster-name", body={"name": pair.here.cluster_name})
        try:
            admin.exchange(pair.vhost, "x")
            admin.parameter("federation-upstream", pair.vhost, "o", {"uri": pair.there.uri(pair.vhost)})
            admin.policy(pair.vhost, "p", "^x$", definition={"federation-upstream": "o"})
            wait_for_consumer(pair.there, pair.vhost, pair.queue)
            planned = await pair.plan_link({**pair.origin(), **FEDERATE})
        finally:
            admin.put("cluster-name", body={"name": node.cluster_name})
    assert (planned.outlook, planned.actions) == (Outlook.STANDBY, ())
    assert "has 1 consumer" in planned.reason
