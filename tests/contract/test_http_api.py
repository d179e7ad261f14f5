"""What the HTTP API answers to the agent's client, and which policies it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from agent.core.addresses.uri import parse_http
from agent.errors import PermanentError
from agent.management.answers import ApiUser
from agent.management.client import ManagementClient
from tests.contract.asking import Asking, Release
from tests.lab.admin import AdminError
from tests.lab.waiting import eventually_async

TAKEN: Final = 201
POLICIES: Final[dict[tuple[str, str, object], dict[str, int]]] = {
    # what a policy holds for, and its key and value: the status that answers it
    ("exchanges", "alternate-exchange", "a"): {"3.10": TAKEN},
    ("all", "max-length", 1): {"3.10": TAKEN},
    ("queues", "max-length", 1): {"3.10": TAKEN},
    ("classic_queues", "max-length", 1): {"3.10": 400, "3.12": TAKEN},
    ("quorum_queues", "max-length", 1): {"3.10": 400, "3.12": TAKEN},
    ("streams", "max-length-bytes", 1): {"3.10": 400, "3.12": TAKEN},
    ("queues", "delivery-limit", 1_000_000): {"3.10": TAKEN},
    ("queues", "delivery-limit", -1): {"3.10": 400, "4.0": TAKEN},
    ("queues", "consumer-timeout", 1_000): {"3.10": 400, "3.12": TAKEN},
}
KNOW_DELIVERY_LIMIT: Final = {"classic": False, "quorum": True, "stream": False}
ARGUMENTS_OF_A_CLASSIC_QUEUE: Final = {
    "3.10": {"x-internal-purpose": "federation"},
    "4.0": {"x-internal-purpose": "federation", "x-queue-type": "classic"},
}


@pytest.fixture
async def client(release: Release) -> AsyncIterator[ManagementClient]:
    async with ManagementClient([parse_http(release.node.management_uri())]) as client:
        yield client


async def test_overview_and_whoami(release: Release, client: ManagementClient) -> None:
    overview = await client.overview()
    assert (overview["cluster_name"], overview["rabbitmq_version"]) == (release.node.cluster_name, release.version)
    assert (overview["product_name"], overview["product_version"]) == ("RabbitMQ", release.version)
    assert (overview["disable_stats"], overview["rates_mode"]) == (False, "basic")
    assert await client.whoami() == ApiUser("guest", frozenset({"administrator"}))


async def test_a_vhost_of_any_name(
    release: Release, client: ManagementClient, asking: Callable[..., Asking], name: Callable[[str], str]
) -> None:
    odd, admin = name("a/b%c d?ä{}"), release.node.admin
    bound = {"source": "x/y {0}", "destination": "q", "destination_type": "queue", "routing_key": "k"}
    expected = {**bound, "arguments": {"n": 1, "t": {"a": [1, "b"]}}}
    with admin.temporary_vhost(odd):
        assert odd in [vhost["name"] for vhost in await client.vhosts()]
        admin.exchange(odd, "x/y {0}")
        admin.queue(odd, "q")
        admin.bind(odd, "x/y {0}", "q", "k", arguments={"n": 1, "t": {"a": [1, "b"]}})
        admin.bind(odd, "amq.topic", "x/y {0}", "k", to_exchange=True)
        assert expected in await client.bindings(odd)
        assert await client.bindings_from(odd, "x/y {0}") == [expected]
        [to_exchange] = await client.bindings_from(odd, "amq.topic")
        assert (to_exchange["destination_type"], to_exchange["arguments"]) == ("exchange", {})
        assert await client.bindings_from(odd, "gone") == []
        assert await asking(vhost=odd).counted("q") == "ok, 0 messages, 0 consumers"


async def test_a_vhost_that_is_not_there(client: ManagementClient) -> None:
    with pytest.raises(PermanentError, match="vhost 'gone' does not exist"):
        await client.exchanges("gone")


async def test_exchanges_and_queues_show_their_policy_at_once(
    ask: Asking, release: Release, client: ManagementClient
) -> None:
    admin, vhost = release.node.admin, release.vhost
    admin.policy(vhost, "of-queues", "^fed", definition={"max-length": 5}, apply_to="queues")
    admin.policy(vhost, "of-exchanges", "^fed", definition={"alternate-exchange": "a"}, apply_to="exchanges")
    await ask.exchange("fed.x", "headers", {"alternate-exchange": "ae"})
    await ask.queue("fed.quorum", {"x-queue-type": "quorum"})
    await ask.queue("fed.classic", {"x-internal-purpose": "federation"})
    await ask.queue("other", auto_delete=True)
    exchanges = {each["name"]: each for each in await client.exchanges(vhost)}
    assert exchanges["fed.x"] == {
        "name": "fed.x", "type": "headers", "durable": True, "auto_delete": False, "internal": False,
        "arguments": {"alternate-exchange": "ae"}, "policy": "of-exchanges",
    }  # fmt: skip
    assert exchanges["amq.rabbitmq.trace"]["internal"]
    assert not exchanges["amq.topic"].get("policy")
    listed: dict[str, Any] = {each["name"]: each for each in await client.queues(vhost)}
    queues = {name: listed[name] for name in ("fed.quorum", "fed.classic", "other")}
    shown = {name: (each["type"], each.get("policy") or "", each["auto_delete"]) for name, each in queues.items()}
    assert shown == {
        "fed.quorum": ("quorum", "of-queues", False),
        "fed.classic": ("classic", "of-queues", False),
        "other": ("classic", "", True),
    }
    assert queues["fed.classic"]["arguments"] == release.says(ARGUMENTS_OF_A_CLASSIC_QUEUE)
    assert {each.get("exclusive") or False for each in queues.values()} == {False}
    assert {each["durable"] for each in queues.values()} == {True}
    for name in ("of-queues", "of-exchanges"):
        admin.delete("policies", vhost, name)


async def test_policies_and_parameters(release: Release, client: ManagementClient) -> None:
    admin, vhost = release.node.admin, release.vhost
    policy = {"pattern": "^y", "apply-to": "queues", "definition": {"max-length": 5}, "priority": 7}
    admin.put("policies", vhost, "p", body=policy)
    admin.put("operator-policies", vhost, "o", body=policy)
    assert {"vhost": vhost, "name": "p", **policy} in await client.policies()
    assert {"vhost": vhost, "name": "p", **policy} in await client.policies_of(vhost)
    assert await client.operator_policies_of(vhost) == [{"vhost": vhost, "name": "o", **policy}]
    admin.put("vhost-limits", vhost, "max-queues", body={"value": 900})
    limits = {"component": "vhost-limits", "vhost": vhost, "name": "limits", "value": {"max-queues": 900}}
    assert limits in await client.parameters()
    assert await client.parameters_of(vhost) == []
    for kind, name in (("policies", "p"), ("operator-policies", "o"), ("vhost-limits", "max-queues")):
        admin.delete(kind, vhost, name)


def status(release: Release, apply_to: str, key: str, value: object) -> int:
    """What answers a policy that holds for nothing."""
    admin, name = release.node.admin, f"{apply_to} {key} {value}"
    try:
        admin.policy(release.vhost, name, "^nothing$", definition={key: value}, apply_to=apply_to)
    except AdminError as error:
        return error.status
    admin.delete("policies", release.vhost, name)
    return TAKEN


async def test_which_policies_are_taken(release: Release) -> None:
    found = {policy: status(release, *policy) for policy in POLICIES}
    assert found == {policy: release.says(answers) for policy, answers in POLICIES.items()}


async def test_a_policy_with_a_key_that_a_queue_does_not_know_is_not_its_policy(
    ask: Asking, release: Release, client: ManagementClient
) -> None:
    for kind in KNOW_DELIVERY_LIMIT:
        await ask.queue(f"of {kind}", {"x-queue-type": kind})
    admin, definition = release.node.admin, {"delivery-limit": 5, "max-length": 5}
    admin.policy(release.vhost, "limits", "^of ", definition=definition, apply_to="queues")

    async def shown() -> dict[str, bool] | None:
        found = {each["name"]: bool(each.get("policy")) for each in await client.queues(release.vhost)}
        found = {kind: found[f"of {kind}"] for kind in KNOW_DELIVERY_LIMIT}
        return found if found["quorum"] else None

    assert await eventually_async(shown, what="the policy holds") == KNOW_DELIVERY_LIMIT
    admin.delete("policies", release.vhost, "limits")


async def test_a_global_parameter(release: Release, client: ManagementClient, name: Callable[[str], str]) -> None:
    parameter, value = name("federation-agent"), {"upstreams": {"o": {"uri": "amqp://h", "max-hops": 2}}, "list": [1]}
    assert await client.global_parameter(parameter) is None
    release.node.admin.global_parameter(parameter, value)
    assert await client.global_parameter(parameter) == value
    release.node.admin.delete("global-parameters", parameter)
    assert await client.global_parameter(parameter) is None


async def test_permissions(release: Release, client: ManagementClient, name: Callable[[str], str]) -> None:
    admin, vhost, user = release.node.admin, release.vhost, name("user")
    admin.user(user, "p", tags="monitoring")
    admin.permissions(vhost, user, configure="^$", write="^w", read="^r")
    admin.put("topic-permissions", vhost, user, body={"exchange": "amq.topic", "write": "^w", "read": "^r"})
    of_user = {"user": user, "vhost": vhost, "write": "^w", "read": "^r"}
    assert await client.permissions_of(user) == [{**of_user, "configure": "^$"}]
    assert await client.topic_permissions_of(user) == [{**of_user, "exchange": "amq.topic"}]
    assert await client.permissions_of(name("nobody")) == []
    async with ManagementClient([parse_http(release.node.management_uri(user, "p"))]) as limited:
        with pytest.raises(PermanentError, match="needs the tag administrator"):
            await limited.permissions_of(user)
        assert [each["name"] for each in await limited.exchanges(vhost)]
    admin.delete("users", user)


async def test_without_the_native_plugins(client: ManagementClient) -> None:
    assert (await client.federation_links(), await client.shovels()) == (None, None)


async def test_what_statistics_show(ask: Asking, release: Release, client: ManagementClient) -> None:
    """Consumers, counts, and of nodes the plugins and alarms: all of it seconds late."""
    await ask.queue("counted")
    await ask.publish("", "counted", b"\x10\0\x02")
    line = await ask.line()
    await line.consume("counted", "below", {"x-priority": -1})
    await line.until(lambda: line.bodies, "it comes")
    vhost = release.vhost

    async def counted() -> bool:
        found = {each["name"]: each for each in await client.queue_counts(vhost)}["counted"]
        return bool(found.get("messages")) and "publish" in found.get("message_stats", ())

    async def consumers() -> list[Any]:
        listed = [each for each in await client.consumers(vhost) if each["queue"]["name"] == "counted"]
        return [each for each in listed if each["channel_details"]]  # a list without anything at first

    async def nodes() -> list[Any]:
        return [each for each in await client.nodes() if each.get("enabled_plugins")]

    await eventually_async(counted, what="messages are counted")
    [consumer] = await eventually_async(consumers, what="consumers are listed")
    [node] = await eventually_async(nodes, what="plugins are listed")
    assert (consumer["consumer_tag"], consumer["arguments"]) == ("below", {"x-priority": -1})
    assert consumer["channel_details"]["node"] == node["name"]
    assert "rabbitmq_event_exchange" in node["enabled_plugins"]
    assert (node["running"], node["mem_alarm"], node["disk_free_alarm"]) == (True, False, False)
