"""Exports are read as the objects that a broker would show, and no secret of them is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.core.migration.objects import (
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    exchange_key,
    policies_in_force,
    queue_key,
    vhost_key,
)
from agent.definitions.sources.cluster_objects import read_cluster_export
from agent.errors import ConfigurationError

QUEUE = {"name": "q", "vhost": "v", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 1}}


def read(tmp_path: Path, document: Any) -> ClusterObjects:
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(document))
    return read_cluster_export(str(path))


def test_an_export(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "rabbitmq_version": "3.10.8",
            "users": [{"name": "u", "password_hash": "SECRET"}],
            "vhosts": [{"name": "v", "metadata": {"description": "d", "tags": ["t"]}, "default_queue_type": "quorum"}],
            "parameters": [
                {"vhost": "v", "component": "shovel", "name": "s", "value": {"src-uri": "amqp://u:SECRET@h"}}
            ],
            "policies": [
                {"vhost": "v", "name": "low", "pattern": "q", "priority": 1, "definition": {"ha-mode": "all"}},
                {"vhost": "v", "name": "high", "pattern": "^q", "apply-to": "queues", "priority": 2, "definition": {}},
                {"vhost": "v", "name": "x", "pattern": "x", "apply-to": "exchanges", "priority": 9, "definition": {}},
            ],
            "queues": [QUEUE],
            "exchanges": [{"name": "x", "vhost": "v", "type": "fanout", "durable": True, "arguments": []}],
            "bindings": [
                {"vhost": "v", "source": "x", "destination": "q", "destination_type": "queue", "routing_key": "k"}
            ],
        },
    )
    assert found.release == (3, 10, 8)
    assert found.objects[vhost_key("v")] == {"description": "d", "tags": ["t"], "default_queue_type": "quorum"}
    assert found.objects[queue_key("v", "q")]["arguments"] == {"x-max-length": 1, "x-queue-type": "classic"}
    assert found.objects[exchange_key("v", "x")]["arguments"] == {}
    assert policies_in_force(found.objects, found.objects, lambda: 0.0) == {
        queue_key("v", "q"): "high", exchange_key("v", "x"): "x",
    }  # fmt: skip
    assert found.parameters == (("v", "shovel", "s"),)
    assert ObjectKey(ObjectKind.BINDING, "v", "x", "q", routing_key="k", arguments="{}") in found.objects
    assert "SECRET" not in repr([getattr(found, name) for name in ClusterObjects.__slots__])


def test_an_export_of_one_vhost(tmp_path: Path) -> None:
    queue = {key: value for key, value in QUEUE.items() if key != "vhost"}
    found = read(tmp_path, {"original_vhost_name": "w", "queues": [queue]})
    assert set(found.objects) == {vhost_key("w"), queue_key("w", "q")}


def test_what_no_broker_can_be_given(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"a": deep}
    down = {"name": "down", "vhost": "v", "durable": True}
    found = read(tmp_path, {"queues": [{**QUEUE, "arguments": deep}, {**QUEUE, "name": "\udcff"}, down]})
    assert [(key.name, why) for key, why in found.unread.items()] == [
        ("q", "is nested deeper than 64 levels"),
        ("\udcff", "has a name that isn't UTF-8"),
        ("down", "is shown without its arguments: is the node of the queue down?"),
    ]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "none of its lists"),
        ([], "doesn't"),
        ({"queues": [{"vhost": "v"}]}, "queues: entry 0 has no 'name' that is text"),
        ({"queues": {"a": 1}}, "queues: expected a list"),
        ({"bindings": [{"source": "x", "destination": 1}]}, "bindings: entry 0 has no 'destination' that is text"),
    ],
)
def test_what_is_none(tmp_path: Path, document: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read(tmp_path, document)
    assert words in str(error.value) or "expected" in str(error.value)
