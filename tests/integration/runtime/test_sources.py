"""Definitions from where operators keep them: the broker's parameters and policies, exports, the configuration."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.amqp.connect import connect_any
from agent.amqp.wire import methods
from agent.core.addresses.uri import parse
from agent.core.links.plan import Outlook
from agent.core.model import ExchangeLink
from agent.errors import ConfigurationError, PermanentError
from tests.acceptance.command import federation_agent
from tests.conftest import Borrowed
from tests.integration.runtime.planning import FEDERATE, ORIGIN, Naming, Pair, of_vhost, only_link, told
from tests.lab.node import NATIVE_PLUGINS, Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import eventually

ProxyTo = Callable[[Node], Proxy]


@pytest.fixture
def native(pair: Pair, borrowed: Borrowed) -> Iterator[Pair]:
    """A broker with the native plugins downstream."""
    node = borrowed(plugins=NATIVE_PLUGINS)
    with node.admin.temporary_vhost(pair.vhost):
        yield replace(pair, here=node)


@contextmanager
def global_parameter(node: Node, value: object) -> Iterator[None]:
    node.admin.global_parameter("federation-agent", value)
    try:
        yield
    finally:
        node.admin.delete("global-parameters", "federation-agent")


def define_on_broker(pair: Pair, pattern: str = "^x$") -> None:
    admin = pair.here.admin
    value = {"uri": pair.there.uri(pair.vhost), "message-ttl": 1000}
    admin.parameter("federation-upstream", pair.vhost, "theirs", value)
    admin.parameter("federation-upstream-set", pair.vhost, "sites", [{"upstream": "theirs", "max-hops": 3}])
    definition = {"federation-upstream-set": "sites"}
    admin.policy(pair.vhost, "federate", pattern, definition=definition, apply_to="exchanges", priority=5)


def policy_in_force(pair: Pair, exchange: str) -> str | None:
    found: str | None = pair.here.admin.get("exchanges", pair.vhost, exchange).get("policy")
    return found


async def test_parameters_and_policies_of_the_broker(native: Pair) -> None:
    native.here.admin.exchange(native.vhost, "x")
    define_on_broker(native)
    planned = await native.plan_link({})
    link = planned.link
    assert (link.upstream, link.policy, link.name) == ("theirs", "federate", "x")
    assert isinstance(link, ExchangeLink)
    assert (link.settings.max_hops, link.settings.message_ttl) == (3, 1000)


async def test_the_plugin_that_runs_a_link_is_left_to_it(native: Pair) -> None:
    native.here.admin.exchange(native.vhost, "x")
    define_on_broker(native)
    eventually(lambda: native.here.admin.get("federation-links", native.vhost), what="a native link")
    planned = await native.plan_link({})
    assert (planned.outlook, planned.actions) == (Outlook.STANDBY, ())
    assert planned.reason.startswith("the federation plugin of the downstream runs this link")


async def test_the_broker_s_verdict_counts_where_another_policy_wins(native: Pair) -> None:
    admin, vhost = native.here.admin, native.vhost
    admin.exchange(vhost, "x")
    admin.exchange(vhost, "xy")
    define_on_broker(native, pattern="^x")
    admin.policy(vhost, "ae", "^x$", definition={"alternate-exchange": "ae"}, apply_to="exchanges", priority=6)
    eventually(lambda: policy_in_force(native, "x") == "ae", what="the verdict")
    found = await native.plan({})
    assert [planned.link.name for planned in of_vhost(found, vhost)] == ["xy"]


async def test_the_higher_priority_of_broker_and_configuration_wins(native: Pair) -> None:
    native.here.admin.exchange(native.vhost, "x")
    define_on_broker(native)
    own = {"pattern": "^x$", "definition": {"federation-upstream": "own"}}
    upstream = {"upstreams": {"own": {"uri": native.there.uri(native.vhost)}}}
    for priority, winner in ((4, "theirs"), (5, "own"), (6, "own")):
        planned = await native.plan_link({**upstream, "policies": {"mine": own | {"priority": priority}}})
        assert planned.link.upstream == winner


async def test_one_set_of_the_configuration_has_an_upstream_of_the_broker(native: Pair) -> None:
    native.here.admin.exchange(native.vhost, "y")
    define_on_broker(native)
    policy = {"pattern": "y", "definition": {"federation-upstream": "theirs"}}
    planned = await native.plan_link({"policies": {"mine": policy}}, definitions={"management": True})
    assert (planned.link.upstream, planned.outlook) == ("theirs", Outlook.RUN)


async def test_a_shovel_parameter(native: Pair) -> None:
    native.there.admin.queue(native.vhost, "from")
    uri = native.there.uri(native.vhost)
    value = {"src-uri": uri, "src-queue": "from", "dest-uri": f"amqp:///{native.vhost}", "dest-queue": "to"}
    native.here.admin.parameter("shovel", native.vhost, "s", value)
    planned = await native.plan_link({})
    assert (planned.link.kind, planned.link.name, planned.outlook) == ("shovel", "s", Outlook.STANDBY)
    assert "the shovel plugin of the downstream runs" in planned.reason


async def test_the_global_parameter_has_the_shape_of_the_file(pair: Pair) -> None:
    pair.here.admin.exchange(pair.vhost, "x")
    with global_parameter(pair.here, {"vhosts": {pair.vhost: {**pair.origin(), **FEDERATE}}}):
        planned = await pair.plan_link({})
        assert (planned.outlook, planned.link.upstream) == (Outlook.RUN, ORIGIN)
        assert of_vhost(await pair.plan({}, definitions={"management": False}), pair.vhost) == []
    assert of_vhost(await pair.plan({}), pair.vhost) == []


async def test_a_mistake_in_the_global_parameter_is_told_with_its_place(pair: Pair) -> None:
    with global_parameter(pair.here, {"upstreams": {"o": {"uri": "http://u:sentinel@h"}}}):
        with pytest.raises(ConfigurationError) as caught:
            await pair.plan({})
        assert "federation-agent" in str(caught.value)
        assert "sentinel" not in str(caught.value)


def test_one_name_from_two_sources_is_refused_with_both_places(pair: Pair) -> None:
    with global_parameter(pair.here, {"vhosts": {pair.vhost: pair.origin()}}):
        done = federation_agent("plan", "-c", pair.write(pair.origin()))
    assert (done.status, done.out) == (2, "")
    [line] = done.errors
    assert f"upstream '{ORIGIN}' in vhost '{pair.vhost}' is also defined at" in line
    assert f"{pair.directory}/agent.yaml:" in line
    assert "global parameter" in line


@pytest.mark.parametrize("away", ["management", "uri"])
def test_a_downstream_that_is_away_is_one_line_and_exit_4(pair: Pair, proxy_to: ProxyTo, away: str) -> None:
    dead = proxy_to(pair.here)
    dead.refuse()
    addresses = {"management": pair.downstream | {"management": f"http://127.0.0.1:{dead.port}"}}
    addresses["uri"] = {"uri": f"amqp://127.0.0.1:{dead.port}"}
    done = federation_agent("plan", "-c", pair.write({}, downstream=addresses[away]))
    assert (done.status, done.out) == (4, "")
    [line] = done.errors
    assert line.startswith("downstream ")
    assert "connection refused" in line


async def test_a_user_without_the_tag_is_told_which_it_needs(pair: Pair, name: Naming) -> None:
    user = name("user")
    pair.here.admin.user(user, "sentinel", tags="management")
    pair.here.admin.permissions(pair.vhost, user)
    address = pair.here.management_uri(user, "sentinel")
    with pytest.raises(PermanentError, match=r"policymaker|monitoring") as caught:
        await pair.plan({}, downstream=pair.downstream | {"management": address})
    assert "sentinel" not in str(caught.value)
    pair.here.admin.delete("users", user)


async def test_queues_of_the_configuration_s_policies(pair: Pair) -> None:
    pair.here.admin.queue(pair.vhost, "missing")
    pair.here.admin.queue(pair.vhost, "stands")
    pair.there.admin.queue(pair.vhost, "stands")
    policy = {"pattern": "", "apply-to": "queues", "definition": {"federation-upstream": ORIGIN}}
    found = await pair.plan({**pair.origin(), "policies": {"queues": policy}})
    assert {planned.link.name: told(planned.actions) for planned in of_vhost(found, pair.vhost)} == {
        "missing": [("create", "queue", "missing")],
        "stands": [("keep", "queue", "stands")],
    }


async def test_shovels_look_for_their_source(pair: Pair) -> None:
    source = {"src-uri": pair.there.uri(pair.vhost), "dest-uri": "amqp://", "dest-queue": "to"}
    pair.there.admin.queue(pair.vhost, "stands")
    pair.there.admin.exchange(pair.vhost, "x")
    shovels = {
        "keeps": source | {"src-queue": "stands"},
        "makes": source | {"src-queue": "missing"},
        "waits": source | {"src-queue": "missing", "src-predeclared": True},
        "binds": source | {"src-exchange": "x"},
        "seeks": source | {"src-exchange": "y"},
        "lost": source | {"src-queue": "stands", "src-uri": f"amqp://127.0.0.1:{pair.there.amqp_port}"},
    }
    found = await pair.plan({"shovels": shovels})
    assert {planned.link.name: (str(planned.outlook), told(planned.actions)) for planned in found.plan.links} == {
        "keeps": ("run", [("keep", "queue", "stands"), ("create", "queue", "to")]),
        "makes": ("run", [("create", "queue", "missing"), ("create", "queue", "to")]),
        "waits": ("backoff", []),
        "binds": ("run", [("create", "queue", "to")]),
        "seeks": ("backoff", []),
        "lost": (
            "run",
            [("create", "queue", "stands"), ("create", "queue", "to")],
        ),  # without a path, a shovel means vhost /
    }


async def test_a_destination_of_a_shovel_is_looked_at_whatever_its_name(pair: Pair) -> None:
    """Some brokers close the connection instead of answering that it is missing, so it is asked for on a spare one."""
    long = "ž" * 115
    pair.there.admin.queue(pair.vhost, long)
    pair.there.admin.exchange(pair.vhost, long)
    shovel = {
        "src-uri": pair.there.uri(pair.vhost),
        "src-exchange": "amq.fanout",
        "dest-uri": pair.there.uri(pair.vhost),
    }
    shovels = {
        "queue": shovel | {"dest-queue": long, "dest-predeclared": True},
        "exchange": shovel | {"dest-exchange": long},
        "none": shovel | {"dest-queue": long + "x", "dest-predeclared": True},
    }
    found = await pair.plan({"shovels": shovels})
    assert {planned.link.name: str(planned.outlook) for planned in found.plan.links} == {
        "queue": "run",
        "exchange": "run",
        "none": "backoff",
    }


async def test_a_destination_queue_that_another_connection_keeps_for_itself(pair: Pair) -> None:
    """Neither `run` nor `plan` takes it for one that is missing."""
    async with await connect_any([parse(pair.there.uri(pair.vhost))], where="test", name="test") as connection:
        channel = await connection.channel()
        await channel.ask(methods.QUEUE_DECLARE, queue="locked", exclusive=True)
        uri = pair.there.uri(pair.vhost)
        shovel = {"src-uri": uri, "src-exchange": "amq.fanout", "dest-uri": uri, "dest-queue": "locked"}
        [planned] = (await pair.plan({"shovels": {"s": shovel}})).plan.links
    assert (planned.outlook, planned.actions) == (Outlook.BACKOFF, ())
    assert "exclusive access to locked queue 'locked'" in planned.reason


async def without_api(pair: Pair, of_vhost: dict[str, Any], **sections: Any) -> Any:
    return await pair.plan(of_vhost, downstream={"uri": pair.downstream["uri"]}, **sections)


async def test_without_the_http_api_exchanges_and_bindings_are_the_configuration_s(pair: Pair) -> None:
    pair.here.admin.exchange(pair.vhost, "stands")
    declared = {name: {"type": "topic", "upstream-set": "all"} for name in ("stands", "new")}
    bindings = {"stands": [{"key": "orders.#"}, {"key": "orders.#"}, {"key": "", "arguments": {"x-match": "all"}}]}
    found = await without_api(pair, {**pair.origin(), "exchanges": declared, "bindings": bindings})
    assert found.reading.cluster == pair.here.cluster_name
    assert sorted(told(found.plan.downstream)) == [("create", "exchange", "new"), ("keep", "exchange", "stands")]
    links = {planned.link.name: planned for planned in of_vhost(found, pair.vhost)}
    assert [action.name for action in links["stands"].actions if action.verb == "bind"] == ["", "orders.#"]
    assert links["new"].bindings == 0
    assert {planned.outlook for planned in links.values()} == {Outlook.RUN}


async def test_without_the_http_api_a_path_in_the_uri_does_not_hide_other_vhosts(pair: Pair) -> None:
    pair.here.admin.exchange(pair.vhost, "stands")
    address = {"uri": pair.downstream["uri"] + "/%2f"}
    found = await pair.plan({"exchanges": {"stands": {"type": "topic"}}}, downstream=address)
    assert told(found.plan.downstream) == [("keep", "exchange", "stands")]


async def test_without_the_http_api_a_missing_vhost_stops_no_other(pair: Pair, name: Naming) -> None:
    pair.here.admin.exchange(pair.vhost, "stands")
    declared = {"exchanges": {"stands": {"type": "topic"}}}
    missing = name("missing")
    found = await without_api(pair, {}, vhosts={pair.vhost: declared, missing: declared})
    assert sorted(told(found.plan.downstream)) == [("create", "exchange", "stands"), ("keep", "exchange", "stands")]
    [problem] = found.problems
    assert f"vhost '{missing}' does not exist" in problem.message


@pytest.mark.parametrize("way", ["rabbitmqctl", "HTTP"])
async def test_a_broker_s_export_stands_for_its_http_api(native: Pair, way: str) -> None:
    admin, vhost = native.here.admin, native.vhost
    admin.exchange(vhost, "x", "headers")
    admin.queue(vhost, "q")
    admin.bind(vhost, "x", "q", "key", arguments={"x-match": "all", "n": 1})
    define_on_broker(native)
    if way == "rabbitmqctl":  # that of 3.10.8 fails at any upstream set
        admin.policy(vhost, "federate", "^x$", definition={"federation-upstream": "theirs"}, priority=5)
        admin.delete("parameters", "federation-upstream-set", vhost, "sites")
    export(native.here, native.directory / "definitions.json", way)
    admin.delete("policies", vhost, "federate")  # or its plugin would serve the link
    eventually(lambda: not admin.get("federation-links", vhost), what="the native link is gone")

    found = await without_api(native, {}, definitions={"files": "definitions.json"})

    planned = only_link(found, vhost)
    assert (planned.outlook, planned.link.policy, planned.link.upstream) == (Outlook.RUN, "federate", "theirs")
    assert isinstance(planned.link, ExchangeLink)
    assert (planned.link.settings.message_ttl, planned.link.exchange.type) == (1000, "headers")
    assert [action.name for action in planned.actions if action.verb == "bind"] == ["key"]
    assert [problem for problem in found.problems if "also defined" in problem.message] == []


def export(node: Node, path: Path, way: str) -> None:
    if way == "HTTP":
        path.write_text(json.dumps(node.admin.get("definitions")))
    else:
        node.ctl("export_definitions", str(path))


async def test_an_export_and_the_http_api_go_together(pair: Pair, native_broker: Node) -> None:
    """Another broker's export defines; what stands is what the downstream's own HTTP API says."""
    with native_broker.admin.temporary_vhost(pair.vhost):
        define_on_broker(replace(pair, here=native_broker))
        export(native_broker, pair.directory / "definitions.json", "HTTP")
    pair.here.admin.exchange(pair.vhost, "x")
    planned = await pair.plan_link({}, definitions={"files": "definitions.json"})
    assert (planned.outlook, planned.link.upstream, planned.link.policy) == (Outlook.RUN, "theirs", "federate")


async def test_the_same_name_in_an_export_and_on_the_broker_is_a_problem_of_its_vhost(native: Pair) -> None:
    define_on_broker(native)
    export(native.here, native.directory / "definitions.json", "HTTP")
    found = await native.plan({}, definitions={"files": "definitions.json"})
    messages = [problem.message for problem in found.problems]
    assert any(re.search(r"upstream 'theirs' .* is also defined at .*definitions\.json:", each) for each in messages)
