"""`check` on real brokers: each trouble is found, a healthy pair has none, and nothing changes on either broker."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agent.check.configuration import check
from agent.check.findings import Finding, FindingLevel, Topic
from agent.core.addresses.uri import parse_http
from agent.core.permissions import Permission
from agent.definitions.sources.load import load_configuration
from tests.acceptance.command import federation_agent
from tests.conftest import Borrowed
from tests.integration.check.conftest import arranged
from tests.integration.check.pair import ORIGIN, PASSWORD, Pair, everything_but, only, problems
from tests.integration.conftest import TlsBroker
from tests.lab.certificates import Authority
from tests.lab.lab import Lab
from tests.lab.node import MANAGEMENT, NATIVE_PLUGINS, Node
from tests.lab.waiting import eventually

Naming = Callable[[str], str]
OBJECTS: Final = ("exchanges", "queues", "bindings", "policies", "parameters", "permissions", "users", "vhosts")


def objects(node: Node) -> dict[str, Any]:
    """The broker's definitions, and its objects that no export holds, such as exclusive queues."""
    exported = node.admin.get("definitions")
    names = {kind: sorted(each["name"] for each in node.admin.get(kind)) for kind in ("exchanges", "queues")}
    return {key: exported[key] for key in OBJECTS} | {"names": names}


async def test_a_healthy_pair_has_no_problems_and_stays_as_it_is(pair: Pair) -> None:
    before = objects(pair.here), objects(pair.there)
    assert problems(await pair.check()) == []
    assert (objects(pair.here), objects(pair.there)) == before


def test_the_command_exits_with_0_for_it(pair: Pair) -> None:
    path = pair.write(pair.upstream())
    api = "origin=${env:ORIGIN_API}"
    done = federation_agent("check", "-c", path, "--api", api, ORIGIN_API=pair.there.management_uri())
    assert (done.status, done.out.splitlines()[-1]) == (0, "1 link checked: 0 errors, 0 warnings, 0 notes")
    assert f"ok upstream origin 127.0.0.1:{pair.there.amqp_port}: RabbitMQ " in done.out


def test_the_command_exits_with_4_for_problems_and_shows_no_secret(pair: Pair, name: Naming) -> None:
    user = name("user")
    pair.user(pair.there, user)
    wrong = pair.there.uri(pair.vhost, user, "not-" + PASSWORD)
    path = pair.write(pair.upstream(wrong))
    done = federation_agent("check", "-c", path, "--format", "json")
    assert done.status == 4
    told = json.loads(done.out)
    assert told["ok"] is False
    [found] = [each for each in told["findings"] if each["level"] == "error"]
    assert (found["topic"], found["where"]) == ("connection", f"upstream origin 127.0.0.1:{pair.there.amqp_port}")
    assert found["message"] == f"login refused for user {user!r}: check user and password in its URI"
    text = federation_agent("check", "-c", path)
    assert text.status == 4
    assert PASSWORD not in done.out + text.out + text.err
    assert text.out.startswith("error connection: upstream origin"), "what works comes after what doesn't"


async def test_a_missing_vhost_is_one_round(pair: Pair, name: Naming) -> None:
    """With the permissions there, and with what is missing in it."""
    user, vhost = name("user"), name("missing")
    pair.there.admin.user(user, PASSWORD)
    of_vhost = pair.upstream(pair.there.uri(vhost, user, PASSWORD))
    found = only(await pair.check(of_vhost), Topic.CONNECTION, FindingLevel.ERROR)
    assert f"vhost {vhost!r} does not exist" in found.message
    create, grant = found.fix.split(" && ")
    with pair.there.admin.temporary_vhost(vhost):
        assert create == f"rabbitmqctl add_vhost {vhost}"
        pair.there.ctl(*_arguments(grant))
        assert problems(await pair.check(of_vhost)) == []


@pytest.mark.parametrize(
    ("trouble", "with_api"),
    [("no vhost", True), ("no user", False), ("wrong password", True), ("wrong password", False)],
)
async def test_an_account_that_the_broker_refuses_is_one_finding(pair: Pair, trouble: str, *, with_api: bool) -> None:
    """Nothing is said of its permissions, and no line is advised that can't work."""
    uri = {
        "no vhost": pair.there.uri("nowhere"),
        "no user": pair.there.uri(pair.vhost, "nobody", PASSWORD),
        "wrong password": pair.there.uri(pair.vhost, "guest", PASSWORD),
    }[trouble]
    found = await pair.check(pair.upstream(uri), with_api=with_api)
    of_upstream = [each for each in found if "upstream origin" in each.where and each.topic is not Topic.ALARM]
    assert [each.topic for each in of_upstream] == [Topic.CONNECTION], of_upstream
    assert of_upstream[0].links == (f"{pair.vhost}/x",)
    assert not any("the login works" in each.message for each in found)


async def test_a_downstream_that_is_away_is_not_said_to_have_no_events(pair: Pair, lab: Lab) -> None:
    away = lab.ports.take()
    found = await pair.check(downstream={"uri": f"amqp://127.0.0.1:{away}"})
    assert {each.topic for each in problems(found)} == {Topic.CONNECTION, Topic.DEFINITIONS}
    assert not any("the login works" in each.message for each in found)


async def test_an_upstream_that_nothing_defines_is_one_finding(pair: Pair) -> None:
    policies = {"federate": {"pattern": "^x", "definition": {"federation-upstream": "nope"}}}
    found = await pair.check(pair.upstream() | {"policies": policies}, definitions={"management": True})
    [undefined] = [each for each in found if "'nope'" in each.message]
    assert undefined.level is FindingLevel.WARNING
    assert "so it yields no link" in undefined.message


async def test_what_is_missing_at_a_shovels_destination_is_said_of_that_broker(pair: Pair) -> None:
    ends = {"src-uri": pair.here.uri(pair.vhost), "dest-uri": pair.there.uri(pair.vhost)}
    shovels = {"out": {**ends, "src-queue": "q", "dest-exchange": "nxout"}}
    found = only(await pair.check({"shovels": shovels}, with_api=False), Topic.LINK, FindingLevel.ERROR)
    destination = f"amqp://127.0.0.1:{pair.there.amqp_port}/{pair.vhost}"
    assert found.where == destination
    assert found.message == (
        f"exchange 'nxout' is missing at the destination, {destination}: declare it there, or change dest-exchange"
    )
    done = federation_agent("plan", "-c", pair.directory / "agent.yaml")
    assert f"shovel 'out' in vhost {pair.vhost!r} ({destination}): backoff: {found.message}" in done.out


async def test_nobody_listens(pair: Pair, lab: Lab) -> None:
    uri = f"amqp://127.0.0.1:{lab.ports.take()}/"
    found = only(await pair.check(pair.upstream(uri)), Topic.CONNECTION, FindingLevel.ERROR)
    assert "connection refused" in found.message


async def test_one_of_two_addresses_fails(pair: Pair, lab: Lab) -> None:
    dead = f"amqp://127.0.0.1:{lab.ports.take()}/"
    several = pair.upstream() | {"upstreams": {"origin": {"uri": [pair.there.uri(pair.vhost), dead]}}}
    found = only(await pair.check(several), Topic.CONNECTION)
    assert "connection refused" in found.message


@pytest.mark.parametrize(
    ("permission", "on"),
    [
        (Permission.CONFIGURE, "'federation: x -> "),
        (Permission.WRITE, "'federation: x -> "),
        (Permission.READ, "'x'"),
    ],
)
async def test_a_missing_permission_upstream(pair: Pair, name: Naming, permission: Permission, on: str) -> None:
    user = name("user")
    uri = pair.user(pair.there, user, **everything_but(permission, "^federation-agent: |^amq.default$"))
    found = [each for each in problems(await pair.check(pair.upstream(uri))) if each.level is FindingLevel.ERROR]
    [lacking] = found
    assert lacking.topic is Topic.PERMISSIONS
    assert f"{permission} on {on}" in lacking.message
    assert lacking.fix.startswith(f"rabbitmqctl set_permissions -p {pair.vhost} {user} ")
    assert lacking.links == (f"{pair.vhost}/x",)


async def test_the_line_grants_what_is_missing(pair: Pair, name: Naming) -> None:
    user = name("user")
    uri = pair.user(pair.there, user, configure="^mine", write="", read="")
    found = problems(await pair.check(pair.upstream(uri)))
    assert len(found) == 2, "\n".join(f"{each.level} {each.where} {each.message} {each.links}" for each in found)
    required, further = found
    assert (required.level, further.level) == (FindingLevel.ERROR, FindingLevel.WARNING)
    pair.there.ctl(*_arguments(required.fix))
    assert problems(await pair.check(pair.upstream(uri))) == []
    [granted] = pair.there.admin.get("users", user, "permissions")
    assert granted["configure"].startswith("(^mine)|")


async def test_topic_permissions(pair: Pair, name: Naming) -> None:
    user = name("user")
    uri = pair.user(pair.there, user)
    pair.there.ctl("set_topic_permissions", "-p", pair.vhost, user, "x", "", "^only$")
    found = only(await pair.check(pair.upstream(uri)), Topic.PERMISSIONS, FindingLevel.ERROR)
    assert "don't allow to read from exchange 'x' with the keys of bindings" in found.message
    assert found.links == (f"{pair.vhost}/x",)
    pair.there.ctl(*_arguments(found.fix))
    assert problems(await pair.check(pair.upstream(uri))) == []


async def test_without_an_api_permissions_are_not_taken_for_proved(pair: Pair, name: Naming) -> None:
    uri = pair.user(pair.there, name("user"), configure="", write="", read="")
    found = await pair.check(pair.upstream(uri), with_api=False)
    [unjudged] = [each for each in found if each.topic is Topic.PERMISSIONS]
    assert unjudged.level is FindingLevel.NOTE
    assert "can't be judged" in unjudged.message
    assert "doesn't prove them" in unjudged.message
    assert "rabbitmqctl set_permissions" not in unjudged.fix  # it would remove what the user has
    assert "to the patterns of user" in unjudged.fix


async def test_a_missing_permission_downstream(pair: Pair, name: Naming) -> None:
    user = name("user")
    uri = pair.user(pair.here, user, write="^nothing$")
    pair.here.admin.permissions("/", user)
    downstream = {"uri": pair.here.uri("/", user, PASSWORD), "management": pair.here.management_uri()}
    found = only(await pair.check(downstream=downstream), Topic.PERMISSIONS, FindingLevel.ERROR)
    assert "write on 'x' (publishing)" in found.message
    assert uri


async def test_the_clock_of_a_broker_differs(pair: Pair) -> None:
    found = problems(await pair.check(clock=lambda: time.time() + 100))
    assert {each.topic for each in found} == {Topic.CLOCK}
    told = [re.search(r"its clock is (\d+) s behind", each.message) for each in found]
    assert all(each is not None and 90 <= int(each[1]) <= 110 for each in told), found  # answers may be late


async def test_a_queue_that_refuses_messages_when_full(pair: Pair) -> None:
    definition = {"max-length": 10, "overflow": "reject-publish"}
    pair.here.admin.policy(pair.vhost, "short", "^q$", definition=definition, apply_to="queues")
    found = only(await pair.check(), Topic.LIMITS)
    assert "queue 'q'" in found.message
    assert "max-length 10, reject-publish, by policy 'short'" in found.message


async def test_a_policy_that_drops_what_waits_upstream(pair: Pair) -> None:
    pair.there.admin.policy(pair.vhost, "all", ".*", definition={"max-length": 1000}, apply_to="queues")
    found = only(await pair.check(), Topic.LIMITS)
    assert "has max-length by policy 'all'" in found.message


@pytest.mark.parametrize(("drops", "warns"), [({}, False), ({"message-ttl": 60000}, True)])
async def test_a_policy_that_may_dead_letter_probes(pair: Pair, drops: dict[str, int], warns: bool) -> None:
    """They never expire by themselves."""
    definition = {"dead-letter-exchange": "dlx"} | drops
    pair.there.admin.policy(pair.vhost, "all", ".*", definition=definition, apply_to="queues")
    for probe in ("10s", "off"):
        of_vhost = pair.upstream(probe=probe, management=pair.there.management_uri())
        found = [each.message for each in problems(await pair.check(of_vhost, with_api=False))]
        said = [each for each in found if "dead-letter-exchange 'dlx' by policy 'all'" in each]
        assert len(said) == (warns and probe != "off"), found


async def test_a_missing_alternate_exchange(pair: Pair) -> None:
    pair.here.admin.exchange(pair.vhost, "x2", arguments={"alternate-exchange": "nowhere"})
    pair.there.admin.exchange(pair.vhost, "x2")
    found = only(await pair.check(), Topic.ALTERNATE)
    assert "alternate exchange 'nowhere' of exchange 'x2'" in found.message


async def test_an_alternate_exchange_by_policy(pair: Pair) -> None:
    definition = {"alternate-exchange": "nowhere"}
    pair.here.admin.policy(pair.vhost, "ae", "^x$", definition=definition, apply_to="exchanges")
    assert "'nowhere'" in only(await pair.check(), Topic.ALTERNATE).message


async def test_an_exchange_that_federates_itself(pair: Pair) -> None:
    found = only(await pair.check(pair.upstream(pair.here.uri(pair.vhost))), Topic.LOOP, FindingLevel.ERROR)
    assert "is the downstream itself" in found.message


async def test_shovels_in_a_circle(pair: Pair) -> None:
    def shovel(source: Node, destination: Node) -> dict[str, str]:
        return {
            "src-uri": source.uri(pair.vhost), "src-queue": "q",
            "dest-uri": destination.uri(pair.vhost), "dest-queue": "q",
        }  # fmt: skip

    shovels = {"there": shovel(pair.here, pair.there), "back": shovel(pair.there, pair.here)}
    found = only(await pair.check({"shovels": shovels}), Topic.LOOP, FindingLevel.ERROR)
    assert set(found.links) == {f"{pair.vhost}/there", f"{pair.vhost}/back"}


async def test_no_event_exchange(lab: Lab, second_broker: Node, name: Naming, tmp_path: Path) -> None:
    quiet = lab.shared("quiet", plugins=(MANAGEMENT,))
    vhost = name("vhost")
    with quiet.admin.temporary_vhost(vhost), second_broker.admin.temporary_vhost(vhost):
        found = only(await arranged(tmp_path, quiet, second_broker, vhost).check(), Topic.EVENTS)
    assert found.fix == "rabbitmq-plugins enable rabbitmq_event_exchange"


async def test_an_event_exchange_that_can_not_be_looked_for_is_not_taken_for_missing(pair: Pair, name: Naming) -> None:
    """The user may not enter vhost `/`, where the exchange is; it exists."""
    user = name("user")
    uri = pair.user(pair.here, user).replace(f"/{pair.vhost}", "")
    downstream = {"uri": f"{uri}/{pair.vhost}", "management": pair.here.management_uri()}
    found = only(await pair.check(downstream=downstream), Topic.EVENTS)
    assert "can't be looked for in vhost '/'" in found.message
    assert "rabbitmq-plugins" not in found.fix
    assert f"rabbitmqctl set_permissions -p / {user} " in found.fix


async def test_the_native_plugin_runs_the_same_link(
    borrowed: Borrowed, second_broker: Node, name: Naming, tmp_path: Path
) -> None:
    vhost, native_broker = name("vhost"), borrowed(plugins=NATIVE_PLUGINS)
    with native_broker.admin.temporary_vhost(vhost), second_broker.admin.temporary_vhost(vhost):
        pair = arranged(tmp_path, native_broker, second_broker, vhost)
        admin = native_broker.admin
        admin.parameter("federation-upstream", vhost, "origin", {"uri": second_broker.uri(vhost)})
        admin.policy(vhost, "federate", "^x", definition={"federation-upstream-set": "all"}, apply_to="exchanges")
        eventually(lambda: admin.get("federation-links", vhost), what="the plugin runs the link")
        found = only(await pair.check({}, definitions={"management": True}), Topic.PLUGIN)
    assert "the federation plugin of the downstream runs this link" in found.message
    assert found.links == (f"{vhost}/x",)


@pytest.fixture
def secured(pair: Pair, tls_broker: TlsBroker) -> Iterator[Callable[[str], str]]:
    """An upstream's URI, with these parameters, at a broker whose certificate lasts two days."""
    with tls_broker.node.admin.temporary_vhost(pair.vhost):
        yield lambda query: f"amqps://guest:guest@localhost:{tls_broker.amqps_port}/{pair.vhost}?{query}"


async def test_a_certificate_that_expires_soon(
    pair: Pair, secured: Callable[[str], str], tls_broker: TlsBroker
) -> None:
    found = problems(await pair.check(pair.upstream(secured(tls_broker.trust)), with_api=False))
    assert {(each.topic, each.level) for each in found} == {(Topic.TLS, FindingLevel.WARNING)}
    assert any(re.match(r"the server's certificate expires in (1\.9|2\.0) days", each.message) for each in found)
    assert any("an authority in" in each.message for each in found)


async def test_a_wrong_authority(pair: Pair, secured: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    uri = secured(f"cacertfile={Authority.create(tmp_path / 'other', 'other').cacertfile}")
    found = only(await pair.check(pair.upstream(uri), with_api=False), Topic.TLS, FindingLevel.ERROR)
    assert "its certificate is not trusted" in found.message


async def test_a_certificate_that_nobody_verifies(pair: Pair, secured: Callable[[str], str]) -> None:
    found = problems(await pair.check(pair.upstream(secured("verify=verify_none")), with_api=False))
    assert any("is not verified" in each.message for each in found)


@pytest.mark.versions
async def test_a_delivery_limit_of_quorum_queues(
    broker: Node, broker_on: Callable[..., Node], name: Naming, tmp_path: Path
) -> None:
    newer, vhost = broker_on("sid"), name("vhost")
    with broker.admin.temporary_vhost(vhost), newer.admin.temporary_vhost(vhost):
        pair = arranged(tmp_path, broker, newer, vhost)
        quorum = {**pair.upstream(**{"queue-type": "quorum"})}
        found = only(await pair.check(quorum), Topic.RELEASE)
        assert "returned 20 times (delivery limit from the default of releases from 4.0 on)" in found.message
        newer.ctl(*_arguments(found.fix))
        assert problems(await pair.check(quorum)) == []
        newer.admin.policy(vhost, "low", "^fed", definition={"delivery-limit": 7}, apply_to="queues", priority=9)
        found = only(await pair.check(quorum), Topic.RELEASE)
        assert "policy 'low'" in found.message
        newer.ctl(*_arguments(found.fix))
        assert problems(await pair.check(quorum)) == []


def _arguments(command: str) -> list[str]:
    import shlex

    words = shlex.split(command)
    assert words[0] == "rabbitmqctl"
    return words[1:]


def returned_too_often(findings: list[Finding]) -> dict[str, Finding]:
    """By the queue."""
    limited = [each for each in findings if each.topic is Topic.RELEASE and each.level is FindingLevel.WARNING]
    return {each.message.split("'")[1]: each for each in limited}


def _shovels_from(node: Node, to: Node, vhost: str, *queues: str) -> dict[str, Any]:
    ends = {"src-uri": node.uri(vhost), "dest-uri": to.uri(vhost), "dest-queue": "q"}
    return {"shovels": {name: {**ends, "src-queue": name} for name in queues}}


def _policies(node: Node, vhost: str) -> dict[str, str]:
    """By the queue that it holds for."""
    rows = node.ctl("-q", "list_queues", "-p", vhost, "name", "policy", "--no-table-headers").splitlines()
    return {name: policy for name, _, policy in (row.partition("\t") for row in rows)}


@pytest.fixture(params=[None, "trixie"])
def limited(
    request: pytest.FixtureRequest, broker: Node, broker_on: Callable[..., Node], name: Naming, tmp_path: Path
) -> Iterator[Pair]:
    """With an upstream of 3.10.8, or of 4.0.5, whose quorum queues have a limit by default."""
    there, vhost = broker_on(request.param, name="second"), name("vhost")
    with broker.admin.temporary_vhost(vhost), there.admin.temporary_vhost(vhost):
        yield arranged(tmp_path, broker, there, vhost)


async def _checked(pair: Pair, *queues: str) -> dict[str, Finding]:
    path = pair.write(_shovels_from(pair.there, pair.here, pair.vhost, *queues))
    configuration = load_configuration(str(path), environment={})
    apis = {f"127.0.0.1:{pair.there.amqp_port}": [parse_http(pair.there.management_uri())]}
    return returned_too_often(list((await check(configuration, apis=apis)).findings))


@pytest.mark.versions
async def test_each_queue_that_is_advised_keeps_its_limit_and_the_users_policies(
    broker: Node, broker_on: Callable[..., Node], name: Naming, tmp_path: Path
) -> None:
    """On 4.0, where the default is low: all lines are run, and all queues are safe, with all that they had."""
    there, vhost = broker_on("trixie"), name("vhost")
    with broker.admin.temporary_vhost(vhost), there.admin.temporary_vhost(vhost):
        pair = arranged(tmp_path, broker, there, vhost)
        for queue in ("q1", "q2", "q3", "q4"):
            there.admin.queue(vhost, queue, arguments={"x-queue-type": "quorum"})
        there.admin.queue(vhost, "classic4")
        there.admin.policy(vhost, "mine", "3$", definition={"dead-letter-exchange": "my.dlx"}, apply_to="queues")
        there.admin.policy(vhost, "shared", "4$", definition={"dead-letter-exchange": "dlx"}, apply_to="queues")
        found = await _checked(pair, "q1", "q2", "q3", "q4")
        assert list(found) == ["q1", "q2", "q3", "q4"]
        for each in found.values():
            there.ctl(*_arguments(each.fix))
        assert await _checked(pair, "q1", "q2", "q3", "q4") == {}
        in_force = _policies(there, vhost)
        assert in_force == {
            "q1": "federation-returns q1", "q2": "federation-returns q2", "q3": "mine",
            "q4": "federation-returns q4", "classic4": "shared",
        }  # fmt: skip
        definitions = {each["name"]: each["definition"] for each in there.admin.get("policies", vhost)}
        letters = [definitions[in_force[queue]].get("dead-letter-exchange") for queue in ("q3", "q4", "classic4")]
        assert letters == ["my.dlx", "dlx", "dlx"]


@pytest.mark.versions
async def test_a_low_limit_is_raised_where_it_comes_from(limited: Pair) -> None:
    there, vhost = limited.there, limited.vhost
    low = {"delivery-limit": 5}
    for queue, arguments in (("arguments", {"x-delivery-limit": 5}), ("policy", {}), ("operator", {}), ("all", {})):
        there.admin.queue(vhost, queue, arguments={"x-queue-type": "quorum", **arguments})
    there.admin.policy(vhost, "low", "^(policy|all)$", definition=low, apply_to="queues", priority=10)
    for name, pattern in (("op", "^operator$"), ("op-all", "^all$")):
        body = {"pattern": pattern, "definition": {**low, "max-length": 99}, "apply-to": "queues", "priority": 3}
        there.admin.put("operator-policies", vhost, name, body=body)
    found = await _checked(limited, "arguments", "policy", "operator", "all")
    assert set(found) == {"arguments", "policy", "operator", "all"}
    argument = found.pop("arguments")
    assert "(delivery limit from its arguments)" in argument.message
    assert "rabbitmqctl" not in argument.fix
    for each in found.values():
        for command in each.fix.split(" && "):
            there.ctl(*_arguments(command))
    assert set(await _checked(limited, "arguments", "policy", "operator", "all")) == {"arguments"}
    kept = {each["name"]: each["definition"]["max-length"] for each in there.admin.get("operator-policies", vhost)}
    assert kept == {"op": 99, "op-all": 99}


async def test_an_api_given_on_purpose_that_fails_is_a_warning(pair: Pair) -> None:
    configuration = load_configuration(str(pair.write(pair.upstream())), environment={})
    apis = {ORIGIN: [parse_http("http://u:secret@127.0.0.1:1")], "typo": [parse_http("http://127.0.0.1:1")]}
    found = problems(list((await check(configuration, apis=apis)).findings))
    messages = "\n".join(each.message for each in found)
    assert "asked for with --api, but it fails: " in messages
    assert "--api typo" in {each.where for each in found}
    assert "secret" not in messages
