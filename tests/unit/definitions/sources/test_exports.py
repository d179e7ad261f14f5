"""Definitions exports, whole and of one vhost, JSON and YAML; places found in JSON only where something is wrong."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from agent.core.addresses.uri import AmqpUri
from agent.core.model import (
    AddressDestination,
    AddressSource,
    Choice,
    Federation,
    LinkSettings,
    QueueDestination,
    QueueSource,
)
from agent.definitions.document.findings import Path
from agent.definitions.models.downstream_objects import NO_FEDERATION
from agent.definitions.sources.exports import Export, JsonText, read_export
from agent.errors import ConfigurationError

EXPORT: dict[str, Any] = {
    "rabbit_version": "4.1.0",
    "users": [{"name": "u", "password_hash": "sentinel", "tags": ["administrator"]}],
    "vhosts": [{"name": "/"}, {"name": "v"}],
    "permissions": [],
    "parameters": [
        {"vhost": "/", "component": "federation-upstream", "name": "a", "value": {"uri": "amqp://h", "max-hops": 2}},
        {"vhost": "v", "component": "federation-upstream-set", "name": "s", "value": [{"upstream": "a"}]},
        {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 1}},
    ],
    "global_parameters": [
        {"name": "cluster_name", "value": "c"},
        {"name": "federation-agent", "value": {"upstreams": {"b": {"host": "h"}}}},
    ],
    "policies": [
        {
            "vhost": "/",
            "name": "p",
            "pattern": "^x",
            "apply-to": "exchanges",
            "definition": {"federation-upstream-set": "all", "max-length": 1},
            "priority": 1,
        },
        {"vhost": "/", "name": "q", "pattern": "", "apply-to": "all", "definition": {"max-length": 1}, "priority": 0},
    ],
    "queues": [
        {"vhost": "/", "name": "q", "durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}}
    ],
    "exchanges": [
        {
            "vhost": "/",
            "name": "x",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "bindings": [
        {
            "vhost": "/",
            "source": "x",
            "destination": "q",
            "destination_type": "queue",
            "routing_key": "k",
            "arguments": {},
        }
    ],
}


def read(value: Any) -> Export:
    return read_export(json.dumps(value).encode(), "export.json")


def complaints(data: bytes) -> list[str]:
    try:
        return [str(problem) for problem in read_export(data, "f").warnings]
    except ConfigurationError as error:
        return [str(problem) for problem in error.problems]


@pytest.mark.parametrize("encode", [json.dumps, lambda value: json.dumps(value, indent=2), pyyaml.safe_dump])
def test_a_whole_broker(encode: Any) -> None:
    export = read_export(encode(EXPORT).encode(), "f")
    vhost = export.definitions.of("/")
    assert vhost.upstreams["a"].settings == LinkSettings(max_hops=2)
    assert set(vhost.upstreams) == {"a", "b"}
    assert vhost.policies["p"].federation == Federation(Choice.SET, "all")
    assert vhost.policies["q"].federation is None  # it takes part in matching
    assert set(export.definitions.of("v").upstream_sets) == {"s"}
    assert set(export.states["/"].exchanges) == {"x"}
    assert set(export.states["/"].queues) == {"q"}
    assert export.bindings["/"]["x"][0].routing_key == "k"
    [note] = export.warnings
    assert str(note).startswith("f:")
    assert str(note).endswith(": policy 'q': " + NO_FEDERATION)
    assert "sentinel" not in repr(export)


def test_shovels_of_all_protocols() -> None:
    values = {
        "ten": {
            "src-protocol": "amqp10", "src-uri": "amqp://h?hostname=vhost:tenant", "src-address": "/queues/a",
            "dest-protocol": "amqp10", "dest-uri": "amqp://h/", "dest-address": "/exchanges/x/k",
        },
        "local": {
            "src-protocol": "local", "src-uri": "amqp:///v", "src-queue": "a",
            "dest-protocol": "local", "dest-uri": "amqp://u:p@elsewhere", "dest-queue": "b",
        },
    }  # fmt: skip
    shovels = [{"vhost": "/", "component": "shovel", "name": name, "value": value} for name, value in values.items()]
    export = read({**EXPORT, "parameters": shovels, "policies": []})
    found = export.definitions.of("/").shovels
    assert (found["ten"].source, found["ten"].destination) == (
        AddressSource("/queues/a"),
        AddressDestination("/exchanges/x/k"),
    )
    assert [uri.vhost("/") for uri in (*found["ten"].source_uris, *found["ten"].destination_uris)] == ["tenant", "/"]
    assert (found["local"].source, found["local"].destination) == (QueueSource("a"), QueueDestination("b"))
    assert (found["local"].source_uris, found["local"].destination_uris) == ((AmqpUri(path="/v"),), (AmqpUri(),))
    assert export.warnings == ()


def test_policies_without_a_key_of_federation_are_noted_up_to_a_number() -> None:
    """Where another one federates: elsewhere they take no part."""
    others = [
        {"vhost": vhost, "name": f"q{number:02}", "pattern": "x", "definition": {"max-length": 5}}
        for vhost in ("/", "v")
        for number in range(30)
    ]
    found = complaints(json.dumps({**EXPORT, "policies": [*EXPORT["policies"], *others]}).encode())
    assert [each.split(": ")[2] for each in found][-2:] == [
        "policy 'q08'", "this and further policies",
    ]  # fmt: skip
    assert len(found) == 11


@pytest.mark.parametrize(("more", "vhost"), [({"original_vhost_name": "v"}, "v"), ({}, "/")])
def test_an_export_of_one_vhost(more: dict[str, str], vhost: str) -> None:
    one = {
        name: [{key: value for key, value in item.items() if key != "vhost"} for item in EXPORT[name][:1]]
        for name in ("parameters", "policies", "queues", "exchanges", "bindings")
    }
    export = read({**one, **more})
    assert set(export.definitions.of(vhost).upstreams) == {"a"}
    assert set(export.definitions.of(vhost).policies) == {"p"}
    assert set(export.states) == {vhost}
    assert set(export.bindings) == {vhost}
    assert len(export.warnings) == (0 if more else 1)


def test_places_in_json() -> None:
    text = b"""\
{
  "parameters": [
    {"vhost": "/", "component": "federation-upstream", "name": "a",
     "value": {"uri": "amqp://h", "max-hop": 2}},
    {"vhost": "/", "component": "federation-upstream", "name": "b",
     "value": {"uri":
       "http://h"}}
  ],
  "policies": [{"name": "p", "pattern": "(", "definition": {"federation-upstream": "a"}, "vhost": "/"}]
}
"""
    assert complaints(text) == [
        "f:4:35: unknown key 'max-hop' in an upstream; did you mean 'max-hops'?",
        "f:7:8: uri: the scheme must be amqp or amqps",
        "f:9:41: not run: pattern: not a regular expression: missing ) at position 1; the policy defines no link",
    ]


def test_policies_for_streams_and_with_patterns_of_the_brokers_own_yield_nothing() -> None:
    definition = {"federation-upstream-set": "all"}
    policies = [
        {"name": "s", "pattern": "x", "apply-to": "streams", "definition": definition, "vhost": "/"},
        {"name": "p", "pattern": "x", "definition": {"federation-upstream-pattern": "("}, "vhost": "/"},
        {"name": "q", "pattern": "x", "definition": definition, "vhost": "/"},
    ]
    export = read_export(json.dumps({"policies": policies}).encode(), "f")
    assert set(export.definitions.of("/").policies) == {"q"}
    (warning,) = export.warnings
    assert "the policy defines no link" in warning.message


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"a": }', "f:1:7: not JSON: Expecting value"),
        (b'{\n"a": 1', "f:2:7: not JSON: Expecting ',' delimiter"),
        (b'{"a": NaN}', "f:1:1: a number can't be read (too long, NaN or Infinity)"),
        (b'{"a": ' + b"9" * 5000 + b"}", "f:1:1: a number can't be read (too long, NaN or Infinity)"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "f:1:1: nested too deeply"),
        (
            b'{"a": [' + b"[]," * 500_000 + b"[]]}",
            "f:1:1: the file holds more objects than can be read at once; split it by vhost",
        ),
        (b'{"parameters": [' + b"1," * 20_000 + b"1]}", "f:1:40017: parameters: more than 20000 of them"),
        (b"[]", "f:1:1: expected a definitions export, got a list"),
        (b"", "f:1:1: expected a definitions export, got nothing"),
        (b'{"parameters": {}}', "f:1:16: parameters: expected a list, got a mapping"),
        (b'{"parameters": [1]}', "f:1:17: parameters: expected a mapping, got a number"),
        (
            b'{"upstreams": {}}',
            "f:1:1: warning: this doesn't look like a definitions export; it has none of its lists",
        ),
        (b"\xff\xfe{}", "f:1:1: the file is not UTF-8 (UTF-16, or not text); save it as UTF-8"),
        (b'{"a": "\xff"}', "f:1:8: byte 0xff is not UTF-8; save the file as UTF-8"),
        (b"parameters: !x []", "f:1:13: tags ('!') aren't supported; quote the text"),
        (b"#" * 2_000_000, "f:1:1: larger than 1024 KiB, which only a JSON export may be"),
    ],
)
def test_what_is_no_export(data: bytes, complaint: str) -> None:
    assert complaints(data) == [complaint]


def test_texts_are_taken_literally() -> None:
    value = {"uri": "amqp://h", "exchange": "${env:HOME}"}
    export = read({"parameters": [{"vhost": "/", "component": "federation-upstream", "name": "a", "value": value}]})
    assert export.definitions.of("/").upstreams["a"].settings == LinkSettings(exchange="${env:HOME}")


def test_strange_items_are_passed_over() -> None:
    strange = [{"name": 1}, {"vhost": 5, "name": "x"}, {}, {"name": None, "source": [], "component": {}}]
    export = read(dict.fromkeys(("parameters", "policies", "queues", "exchanges", "bindings"), strange))
    assert not export.definitions.vhosts
    assert set(export.states["/"].exchanges) == {"x"}


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_a_large_export_is_read_in_little_time(count: int) -> None:
    exchange, queue, binding = (EXPORT[name][0] for name in ("exchanges", "queues", "bindings"))
    data = json.dumps(
        {
            "parameters": [{**EXPORT["parameters"][0], "name": f"a{n}"} for n in range(count // 20)]
            + [{**EXPORT["parameters"][0], "value": {}}],
            "exchanges": [{**exchange, "name": f"x{n}"} for n in range(count)],
            "queues": [{**queue, "name": f"q{n}"} for n in range(count)],
            "bindings": [{**binding, "source": f"x{n % count}"} for n in range(4 * count)],
        }
    ).encode()
    started = time.process_time()
    assert len(complaints(data)) == 1
    assert time.process_time() - started < 1 + count / 2_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


def paths(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    below: list[tuple[Path, Any]] = [(path, value)]
    if isinstance(value, dict):
        for key, item in value.items():
            below += paths(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            below += paths(item, (*path, number))
    return below


@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_every_path_is_found_where_its_value_begins(value: Any, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    lines = text.split("\n")
    located = JsonText(text, "f")
    for path, item in paths(value):
        place = located.place(path, key=False)
        assert place.line is not None
        assert place.column is not None
        rest = "\n".join([lines[place.line - 1][place.column - 1 :], *lines[place.line :]])
        assert json.JSONDecoder().raw_decode(rest)[0] == item


def policies_of(*policies: dict[str, Any]) -> dict[str, Any]:
    found = read({"policies": [{"vhost": "/", "pattern": "", **policy} for policy in policies]})
    return {name: policy.federation for name, policy in found.definitions.of("/").policies.items()}


def test_policies_that_federate_nothing_take_part_where_others_federate() -> None:
    federating = {"name": "f", "definition": {"federation-upstream-set": "all"}}
    other = {"name": "o", "definition": {"max-length": 1}, "priority": 9}
    assert policies_of(other) == {}
    assert policies_of(other, federating) == {"f": Federation(Choice.SET, "all"), "o": None}
    unreadable = {**other, "pattern": "("}
    assert list(policies_of(unreadable, federating)) == ["f"]
    assert list(policies_of({**other, "apply-to": "streams"}, federating)) == ["f"]
