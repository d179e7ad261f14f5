"""A broker's parameters, policies and global parameter: the same models, softer rules, nothing interpolated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent.core.fields import UNREAD
from agent.core.model import (
    AddressDestination,
    AddressSource,
    ApplyTo,
    Choice,
    DeleteAfter,
    Federation,
    LinkSettings,
    QueueDestination,
    QueueSource,
    SetMember,
    ShovelDestination,
    ShovelSource,
)
from agent.core.rules.resolve import finish
from agent.definitions.sources.keeper import Keeper, SourceReading
from agent.definitions.sources.parameters import (
    MAX_OF_A_VHOST,
    read_global,
    reading_parameters,
    reading_policies,
)
from agent.errors import ConfigurationError, Place, Problem
from tests.unit.definitions.broker_answers import read_parameters, read_policies

Answer = Mapping[str, Any]
API = "http://h:15672"


def parameter(component: str, name: str, value: object, vhost: str = "/") -> dict[str, Any]:
    return {"vhost": vhost, "component": component, "name": name, "value": value}


def policy(name: str, definition: object, **more: Any) -> dict[str, Any]:
    return {
        "vhost": "/",
        "name": name,
        "pattern": "^x",
        "apply-to": "all",
        "priority": 0,
        "definition": definition,
    } | more


def read(
    *, parameters: Sequence[Answer] = (), policies: Sequence[Answer] = (), global_value: object = None
) -> SourceReading:
    """The three kinds of a broker's documents together."""
    keeper = Keeper()
    keeper.take("parameters", lambda: read_parameters(API, parameters))
    keeper.take("policies", lambda: read_policies(API, policies))
    keeper.take("global", lambda: read_global(API, global_value))
    if keeper.problems:
        raise ConfigurationError(keeper.problems)
    return keeper.current


def complaints(**answers: Any) -> list[str]:
    try:
        return [str(problem) for problem in read(**answers).warnings]
    except ConfigurationError as error:
        return [str(problem) for problem in error.problems]


def test_a_shovel_of_the_topology_operator_is_read_with_every_key_that_it_writes() -> None:
    """As tests/deploy/test_topology_operator.py says. `src-delete-after` is a number where its text is one."""
    ends = {"dest-uri": ["amqp://d"], "src-uri": ["amqp://s", "amqp://t"]}
    common = {"ack-mode": "on-confirm", "prefetch-count": 7, "reconnect-delay": 3, "src-delete-after": 20}
    marks = {"dest-add-forward-headers": True, "dest-add-timestamp-header": True}
    old = {
        "src-exchange": "e",
        "src-exchange-key": "k",
        "src-consumer-args": {"x-priority": 5},
        "dest-queue": "q",
        "dest-queue-args": {"x-queue-type": "quorum"},
        "dest-publish-properties": {"delivery_mode": 2},
        "add-forward-headers": True,
        "delete-after": "never",
        "src-prefetch-count": 7,
    }
    new = {
        "src-protocol": "amqp10",
        "src-address": "/queues/a",
        "dest-protocol": "amqp10",
        "dest-address": "/queues/b",
    }
    ignored = {
        "dest-application-properties": {"a": "b"},
        "dest-message-annotations": {"a": "b"},
        "dest-properties": {"content_type": "text/plain"},
    }
    values = {"old": ends | common | marks | old, "new": ends | common | marks | new | ignored}
    found = read(parameters=[parameter("shovel", name, value) for name, value in values.items()])
    shovels = found.definitions.of("/").shovels
    assert {name: len(each.source_uris) for name, each in shovels.items()} == {"old": 2, "new": 2}
    assert [each.settings.prefetch_count for each in shovels.values()] == [7, 7]
    assert [each.settings.delete_after for each in shovels.values()] == [20, 20]
    assert isinstance(shovels["new"].source, AddressSource)
    assert [str(warning).rpartition(" is ignored")[0].rpartition(" ")[2] for warning in found.warnings] == sorted(
        ignored
    )


def test_parameters_become_definitions() -> None:
    found = read(
        parameters=[
            parameter("federation-upstream", "a", {"uri": "amqp://h", "max-hops": 2}),
            parameter("federation-upstream", "a", {"uri": ["amqp://h"]}, "v"),
            parameter("federation-upstream-set", "s", [{"upstream": "a", "exchange": "e"}]),
            parameter(
                "shovel", "d", {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "r"}
            ),
            parameter("operator_policy", "other", {"anything": 1}),
            parameter("federation", "local-username", "guest"),
        ]
    ).definitions
    assert found.of("/").upstreams["a"].settings == LinkSettings(max_hops=2)
    assert str(found.of("/").upstreams["a"].place) == f"{API} federation-upstream 'a' in vhost '/'"
    assert found.of("/").upstream_sets["s"].members == (
        SetMember("a", LinkSettings(exchange="e"), frozenset({"exchange"})),
    )
    shovel = found.of("/").shovels["d"]
    assert (shovel.source, shovel.destination) == (QueueSource("q"), QueueDestination("r"))
    assert set(found.of("v").upstreams) == {"a"}


def test_every_bad_one_is_told_by_its_object() -> None:
    assert complaints(
        parameters=[
            parameter("federation-upstream", "a", {"uri": "amqp://u:hunter2@h@x"}),
            parameter("federation-upstream", "b", "amqp://u:hunter2@h"),
            parameter("federation-upstream-set", "s", [{"upstream": "a"}, {"max-hops": "2"}], "v"),
        ],
        policies=[policy("p", {"federation-upstream": "a", "federation-upstream-set": "all"})],
        global_value={"upstreams": {"c": {"uri": "amqp://h", "max-hop": 1}}, "upstrems": {}},
    ) == [
        (
            f"{API} federation-upstream 'a' in vhost '/', 'uri': uri: there is more than one '@' before the host; "
            "percent-encode special characters in user, password and path (@ as %40, : as %3A, / as %2F, # as %23)"
        ),
        f"{API} federation-upstream 'b' in vhost '/': expected a mapping, got text",
        f"{API} federation-upstream-set 's' in vhost 'v', 'max-hops': max-hops: expected a whole number, got text",
        f"{API} federation-upstream-set 's' in vhost 'v': a member of an upstream set needs the key 'upstream'",
        (
            f"{API} policy 'p' in vhost '/': a policy's definition takes exactly one of federation-upstream, "
            "federation-upstream-set, federation-upstream-pattern"
        ),
        f"{API} global parameter 'federation-agent': unknown key 'upstrems'; did you mean 'upstreams'?",
        (
            f"{API} global parameter 'federation-agent', 'upstreams', 'c', 'max-hop': "
            "unknown key 'max-hop' in an upstream; did you mean 'max-hops'?"
        ),
    ]


def test_federating_policies_are_kept_apart_and_unmatched() -> None:
    found = read(
        policies=[
            policy("p", {"federation-upstream-set": "all", "alternate-exchange": "x"}, pattern="(?<n>a)\\Q(\\E"),
            policy("q", {"max-length": 1}),
            policy("r", {"federation-upstream": "a"}, **{"apply-to": "things-to-come", "vhost": "v", "priority": 2.5}),
            policy("s", []),
        ]
    )
    assert set(found.verdicts) == {"/", "v"}
    assert set(found.verdicts["/"]) == {"p"}
    assert found.verdicts["/"]["p"].federation == Federation(Choice.SET, "all")
    assert (found.verdicts["v"]["r"].apply_to, found.verdicts["v"]["r"].priority) == (ApplyTo.ALL, 2.5)
    assert not found.definitions.vhosts


@pytest.mark.parametrize("pattern", ["(*MARK:x)(", "x" * 1025])
def test_a_pattern_that_only_the_broker_can_read_costs_its_policy_and_nothing_else(pattern: str) -> None:
    answers = {
        "parameters": [parameter("federation-upstream", "a", {"uri": "amqp://h"})],
        "policies": [policy("p", {"federation-upstream-pattern": pattern}), policy("q", {"federation-upstream": "a"})],
    }
    found = read(**answers)
    assert set(found.verdicts["/"]) == {"q"}
    assert set(found.definitions.of("/").upstreams) == {"a"}
    (complaint,) = complaints(**answers)
    assert complaint.startswith(
        f"{API} policy 'p' in vhost '/', 'definition', 'federation-upstream-pattern': "
        "not run: federation-upstream-pattern: "
    )
    assert complaint.endswith("; the policy defines no link")


def test_the_global_parameter_has_the_shape_of_the_file() -> None:
    value = {
        "upstreams": {"a": {"host": "h", "password": "p"}},
        "policies": {"p": {"pattern": "x", "definition": {"federation-upstream": "a"}}},
        "exchanges": {"e": {"type": "topic", "upstream-set": "all"}},
        "bindings": {"e": [{"key": "k"}]},
        "vhosts": {"v": {"upstream-sets": {"s": [{"upstream": "a"}]}}},
    }
    found = read(global_value=value).definitions
    assert set(found.of("/").policies) == {"p"}
    assert set(found.of("/").exchanges) == {"e"}
    assert set(found.of("v").upstream_sets) == {"s"}


@pytest.mark.parametrize("value", [[], "text", 1, {"agent": {}}, {"downstream": {"uri": "amqp://h"}}])
def test_a_global_parameter_of_another_shape_is_refused(value: object) -> None:
    (complaint,) = complaints(global_value=value)
    assert complaint.startswith(f"{API} global parameter 'federation-agent': ")


def test_a_broker_makes_nobody_read_files_or_the_environment() -> None:
    text = "${file:/etc/passwd}"
    found = read(
        parameters=[parameter("federation-upstream", "a", {"uri": "amqp://h", "exchange": text})],
        global_value={"upstreams": {"b": {"host": "h", "username": "${env:HOME}"}}},
    ).definitions
    assert found.of("/").upstreams["a"].settings == LinkSettings(exchange=text)
    assert found.of("/").upstreams["b"].uris[0].user == "${env:HOME}"


def test_the_same_name_as_parameter_and_in_the_global_one_is_refused() -> None:
    (complaint,) = complaints(
        parameters=[parameter("federation-upstream", "a", {"uri": "amqp://h"})],
        global_value={"upstreams": {"a": {"uri": "amqp://h"}}},
    )
    assert "is also defined at" in complaint


FROM_ADDRESS = {"src-protocol": "amqp10", "src-uri": "amqp://h", "src-address": "/queues/q"}
TO_ADDRESS = {"dest-protocol": "amqp10", "dest-uri": "amqp://h", "dest-address": "/queues/r"}
TO_QUEUE = {"dest-uri": "amqp://", "dest-queue": "r"}


@pytest.mark.parametrize(
    ("value", "source", "destination"),
    [
        (FROM_ADDRESS | TO_ADDRESS, AddressSource("/queues/q"), AddressDestination("/queues/r")),
        (FROM_ADDRESS | TO_QUEUE, AddressSource("/queues/q"), QueueDestination("r")),
        ({"src-uri": "amqp://", "src-queue": "q"} | TO_ADDRESS, QueueSource("q"), AddressDestination("/queues/r")),
        (
            # All keys that 4.3 takes
            FROM_ADDRESS
            | TO_ADDRESS
            | {"src-prefetch-count": 5, "src-delete-after": "never", "src-delete-after-duration": 60}
            | {"src-consumer-name": "n", "src-consumer-args": {"x-priority": 1}, "src-predeclared": True}
            | {"dest-add-forward-headers": True, "dest-add-timestamp-header": True, "dest-predeclared": False}
            | {"ack-mode": "on-confirm", "reconnect-delay": 5},
            AddressSource("/queues/q", is_predeclared=True),
            AddressDestination("/queues/r"),
        ),
        (
            {"src-protocol": "local", "src-uri": "amqp://u@elsewhere", "src-queue": "q"}
            | TO_QUEUE
            | {"dest-protocol": "local"},
            QueueSource("q"),
            QueueDestination("r"),
        ),
    ],
)
def test_shovels_of_all_protocols_are_run(
    value: dict[str, Any], source: ShovelSource, destination: ShovelDestination
) -> None:
    assert complaints(parameters=[parameter("shovel", "s", value)]) == []
    found = read(parameters=[parameter("shovel", "s", value)]).definitions.of("/").shovels["s"]
    assert (found.source, found.destination) == (source, destination)


def test_what_3_10_does_with_properties_is_named() -> None:
    names = ("dest-properties", "dest-application-properties", "dest-message-annotations")
    value = FROM_ADDRESS | TO_ADDRESS | {name: {"a": "b"} for name in names}
    found = complaints(parameters=[parameter("shovel", "s", value)])
    assert [name in each and "is ignored" in each for name, each in zip(sorted(names), found, strict=True)] == [
        True
    ] * 3


def test_a_queue_length_that_amqp10_does_not_show_is_never_reached_as_with_3_10() -> None:
    value = FROM_ADDRESS | TO_ADDRESS | {"src-delete-after": "queue-length"}
    [complaint] = complaints(parameters=[parameter("shovel", "s", value)])
    assert "warning: queue-length is for amqp091" in complaint
    found = read(parameters=[parameter("shovel", "s", value)]).definitions.of("/").shovels["s"]
    assert found.settings.delete_after is DeleteAfter.NEVER


def test_keys_that_do_nothing_are_no_errors_where_rabbitmq_took_them() -> None:
    value = {"src-uri": "amqp://", "src-queue": "q", "src-exchange-key": "k", "dest-uri": "amqp://"}
    (complaint,) = complaints(parameters=[parameter("shovel", "s", value)])
    assert "warning: src-exchange-key does nothing without src-exchange" in complaint


@pytest.mark.parametrize("text", ["\ud800", "x" * 300, "a\nb"])
def test_strange_texts_end_in_one_line_each(text: str) -> None:
    for complaint in complaints(
        parameters=[
            parameter("federation-upstream", text, {"uri": text, text: text, "exchange": text}),
            parameter("federation-upstream-set", text, [{"upstream": text}, text]),
            parameter("shovel", text, {"src-uri": text, "src-queue": text, "src-queue-args": {text: text}}),
        ],
        policies=[policy(text, {"federation-upstream-pattern": text})],
        global_value={text: text, "upstreams": {text: text}, "vhosts": {text: {text: text}}},
    ):
        assert complaint.isprintable()


GOOD = {"uri": "amqp://h"}


def test_what_is_wrong_in_one_vhost_keeps_that_one_as_it_was() -> None:
    component = "federation-upstream"
    before = read(parameters=[parameter(component, "old", GOOD, "bad")])
    answers = [parameter(component, "new", GOOD, "good"), parameter(component, "new", {"uri": "nonsense"}, "bad")]
    told = finish(reading_parameters(API, answers, before))
    assert set(told.definitions.of("good").upstreams) == {"new"}
    assert set(told.definitions.of("bad").upstreams) == {"old"}
    assert ["in vhost 'bad'" in str(problem) for problem in told.refused] == [True]
    keeper = Keeper()
    keeper.take("parameters", lambda: told)
    assert keeper.problems == told.refused
    assert not keeper.refusals


@pytest.mark.parametrize(
    "bad",
    [
        [parameter("federation-upstream", "u", None, "bad") | {UNREAD: "is larger than 512 KiB"}],
        [parameter("federation-upstream", "u", GOOD | {"ha-policy": [0] * 20_000}, "bad")],
        [parameter("federation-upstream", "u", {"uri": ["amqp://h"] * 2_000}, "bad")],
        [parameter("federation-upstream", f"u{number}", GOOD, "bad") for number in range(MAX_OF_A_VHOST + 1)],
    ],
)
def test_too_much_in_one_vhost_is_its_problem(bad: list[dict[str, Any]]) -> None:
    told = finish(reading_parameters(API, [*bad, parameter("federation-upstream", "u", GOOD)], SourceReading()))
    assert set(told.definitions.of("/").upstreams) == {"u"}
    [problem] = told.refused
    assert "'bad'" in str(problem)


def test_a_vhost_that_could_not_be_read_stays_as_it_was() -> None:
    why = Problem(Place(f"{API} vhost 'v'"), "too much")
    before = read(policies=[policy("p", {"federation-upstream-set": "all"}, vhost="v")])
    told = finish(reading_policies(API, [], before, unread={"v": why}))
    assert set(told.verdicts["v"]) == {"p"}
    assert told.refused == (why,)
