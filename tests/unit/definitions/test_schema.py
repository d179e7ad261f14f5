"""The published schema and reference are current, and judge as the agent does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml
from jsonschema import Draft202012Validator

from agent.definitions.reference import reference_text
from agent.definitions.schema import build_schema, migration_schema_text, schema_text
from agent.definitions.sources.load import load_configuration
from agent.errors import ConfigurationError
from tests.unit.definitions.documents import write

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "config").glob("*.yaml"))
SCHEMA = build_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def test_the_published_schema_is_current() -> None:
    published = (ROOT / "config" / "agent.schema.json").read_text()
    assert published == schema_text(), "run: python -m agent.definitions.schema > config/agent.schema.json"


def test_the_published_schema_of_migrations_is_current_and_one() -> None:
    published = (ROOT / "config" / "migration.schema.json").read_text()
    command = "python -m agent.definitions.schema migration > config/migration.schema.json"
    assert published == migration_schema_text(), f"run: {command}"
    Draft202012Validator.check_schema(json.loads(published))


def test_the_published_reference_is_current() -> None:
    published = (ROOT / "docs" / "configuration.md").read_text()
    assert published == reference_text(), "run: python -m agent.definitions.reference > docs/configuration.md"


def test_the_schema_is_one_and_describes_every_key() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for name, definition in SCHEMA["$defs"].items():
        for key, value in definition.get("properties", {}).items():
            assert "description" in value or "$ref" in value, f"{name}.{key}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_load_and_obey_the_schema(path: Path) -> None:
    configuration = load_configuration(str(path), environment={}, strict=False)
    assert all(
        re.search(r"\$\{(env|file):.*(isn't set|no such file)$", warning.message) for warning in configuration.warnings
    )
    assert not list(VALIDATOR.iter_errors(pyyaml.safe_load(path.read_text())))
    assert path.read_text().startswith("# yaml-language-server: $schema=agent.schema.json\n")


def test_the_full_example_shows_every_section() -> None:
    example = pyyaml.safe_load((ROOT / "config" / "agent.example.yaml").read_text())
    assert set(example) == set(SCHEMA["properties"])


def test_yaml_in_the_reference_loads(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", reference_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        configuration = load_configuration(write(tmp_path, block), environment={"ORIGIN_PASSWORD": "x"})
        assert configuration.definitions.of("/").policies


ADDRESSES = {
    "src-protocol": "amqp10",
    "src-uri": "amqp://h",
    "src-address": "/queues/q",
    "dest-protocol": "amqp10",
    "dest-uri": "amqp://h",
    "dest-address": "/queues/r",
}
GOOD: list[dict[str, Any]] = [
    {"policies": {"p": {"pattern": "x", "definition": {"max-length": 1}}}},
    {"x-anchors": {"anything": [1]}, "x-more": None},
    {"upstreams": {"a": {"uri": "amqp://h", "ack-mode": "${env:MODE}", "prefetch-count": "auto"}}},
    {"upstreams": {"a": {"uri": ["amqp://h"], "prefetch-count": 3, "ha-policy": ["x"], "expires": 1}}},
    {"upstreams": {"a": {"host": "${env:HOST}", "protocol": "${env:P}", "mechanism": "EXTERNAL", "heartbeat": "none"}}},
    {"upstream-sets": {"s": [{"upstream": "${file:name}"}]}, "upstreams": {"n": {"uri": "amqp://h"}}},
    {"exchanges": {"e": {"type": "x-foo", "arguments": {"a": [1]}}}},
    {"shovels": {"s": {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://", "delete-after": 3}}},
    {"shovels": {"s": ADDRESSES}},
    {"shovels": {"s": {"src-protocol": "local", "src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://"}}},
    {"vhosts": {"v": {"bindings": {"e": [{"key": "k"}, {}]}}}},
    dict.fromkeys(
        ("agent", "definitions", "vhosts", "upstreams", "upstream-sets", "policies", "exchanges", "bindings")
    ),
    {"shovels": None, "vhosts": {"v": None, "w": {"upstreams": None}}, "agent": {"http": None}},
    {"exchanges": {"e": {"type": "topic", "arguments": None}}},
    {"upstreams": {"a": {"host": "h", "ssl-options": None}}},
    {"upstreams": {"a": {"uri": ["AMQPS://h", "${env:SCHEME}://h"], "exchange": "${env:" + "X" * 300 + "}"}}},
    {"agent": {"http": {"listen": "${env:LISTEN}", "token": "${file:token}"}, "stall-after": 1.5}},
    {"upstreams": {"a": {"uri": "amqp://h", "set-headers": {"site": "eu", "n": {"m": [1]}}, "remove-headers": ["a*"]}}},
    {"upstreams": {"a": {"uri": "amqp://h", "rate-limit": {"messages": 10, "bytes": 1}, "set-headers": None}}},
    {"upstream-sets": {"s": [{"upstream": "a", "rate-limit": "off"}]}, "upstreams": {"a": {"uri": "amqp://h"}}},
]
BAD: list[dict[str, Any]] = [
    {"upstream": {}},
    {"agent": {"nmae": "x"}},
    {"upstreams": {"a": {"uri": "amqp://h", "max-hop": 1}}},
    {"upstreams": {"a": {"uri": "amqp://h", "max-hops": 0}}},
    {"upstreams": {"a": {"uri": "amqp://h", "max-hops": "1"}}},
    {"upstreams": {"a": {"uri": "amqp://h", "host": "h"}}},
    {"upstreams": {"a": {"uri": []}}},
    {"upstreams": {"a": {}}},
    {"upstreams": {"a": {"uri": "amqp://h", "ack-mode": "never"}}},
    {"upstreams": {"a": {"uri": "amqp://h", "trust-user-id": "yes"}}},
    {"upstreams": {"a": {"host": "h", "ssl-options": {"verfy": True}}}},
    {"upstream-sets": {"all": []}},
    {"upstream-sets": {"s": [{}]}},
    {"policies": {"p": {"pattern": "x", "definition": {}}}},
    {"policies": {"p": {"pattern": "x", "definition": {"federation-upstrem": "a"}}}},
    {"exchanges": {"amq.x": {"type": "topic"}}},
    {"exchanges": {"e": {"type": "topics"}}},
    {"exchanges": {"e": {}}},
    {"bindings": {"e": [{"kye": "k"}]}},
    {"shovels": {"s": {"src-uri": "amqp://", "src-queue": "q", "src-exchange": "x", "dest-uri": "amqp://"}}},
    {"shovels": {"s": {"src-uri": "amqp://", "src-queue": "q"}}},
    {"shovels": {"s": {key: value for key, value in ADDRESSES.items() if key != "src-protocol"}}},
    {"shovels": {"s": {key: value for key, value in ADDRESSES.items() if key != "src-address"}}},
    {"shovels": {"s": ADDRESSES | {"dest-protocol": "amqp1.0"}}},
    {"vhosts": {"v": {"agent": {}}}},
    {"upstreams": {"a": {"uri": "http://h"}}},
    {"upstreams": {"a": None}},
    {"upstreams": {"a" * 256: {"uri": "amqp://h"}}},
    {"upstreams": {"": {"uri": "amqp://h"}}},
    {"upstreams": {"a": {"uri": "amqp://h", "exchange": "e" * 256}}},
    {"upstream-sets": {"": []}},
    {"downstream": {"uri": "amqp://h", "management": "amqp://h"}},
    {"downstream": None},
    {"exchanges": {"e": {"type": "x-federation"}}},
    {"exchanges": {"e": {"type": "x-federation-upstream"}}},
    {"policies": {"p": {"pattern": "x", "apply-to": "streams", "definition": {"federation-upstream-set": "all"}}}},
    {"downstream": {}},
    {"definitions": {"files": [1]}},
    {"upstreams": {"a": {"uri": "amqp://h", "rate-limit": {"message": 1}}}},
    {"upstreams": {"a": {"uri": "amqp://h", "rate-limit": {}}}},
    {"upstreams": {"a": {"uri": "amqp://h", "rate-limit": {"bytes": 0}}}},
    {"upstreams": {"a": {"uri": "amqp://h", "remove-headers": "a"}}},
    {"upstreams": {"a": {"uri": "amqp://h", "set-headers": ["a"]}}},
    {"upstreams": {"a": {"uri": "amqp://h", "set-headers": {str(number): 1 for number in range(21)}}}},
]


@pytest.mark.parametrize("document", GOOD, ids=str)
def test_schema_and_agent_take_the_same(tmp_path: Path, document: dict[str, Any]) -> None:
    whole = {"downstream": {"uri": "amqp://h"}, **document}
    assert not list(VALIDATOR.iter_errors(whole))
    write(tmp_path, "n", "name")
    load_configuration(write(tmp_path, json.dumps(whole)), environment={}, strict=False)


@pytest.mark.parametrize("document", BAD, ids=str)
def test_schema_and_agent_refuse_the_same(tmp_path: Path, document: dict[str, Any]) -> None:
    whole = {"downstream": {"uri": "amqp://h"}, **document}
    assert list(VALIDATOR.iter_errors(whole))
    with pytest.raises(ConfigurationError):
        load_configuration(write(tmp_path, json.dumps(whole)), environment={}, strict=False)
