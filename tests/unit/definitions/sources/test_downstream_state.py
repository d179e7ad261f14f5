"""What stands on the downstream, from the HTTP API's answers."""

from __future__ import annotations

import pytest

from agent.core.fields import Field
from agent.core.model import ApplyTo, Binding, Choice, Exchange, Federation, Policy, Queue, QueueType
from agent.definitions.sources.downstream_state import (
    bindings_by_source,
    named,
    read_exchange,
    read_queue,
    vhost_state,
)
from agent.errors import Place

POLICY = Policy("p", "^x", ApplyTo.ALL, 0, Federation(Choice.SET, "all"), Place("http://h"))


def test_exchanges_with_the_brokers_verdict() -> None:
    answers = [
        {"name": "", "type": "direct", "durable": True, "auto_delete": False, "internal": False, "arguments": {}},
        {
            "name": "x",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"b": 1, "a": "t"},
            "policy": "p",
        },
        {"name": "y", "type": "fanout", "durable": False, "auto_delete": True, "internal": True, "policy": "other"},
    ]
    assert {name: read_exchange(name, each, {"p": POLICY}) for name, each in named(answers)} == {
        "x": Exchange("x", "topic", arguments=(("a", Field("S", "t")), ("b", Field("l", 1))), policy=POLICY),
        "y": Exchange("y", "fanout", durable=False, auto_delete=True, internal=True),
    }


def test_queues() -> None:
    answers = [
        {"name": "q", "type": "quorum", "durable": True, "auto_delete": False, "exclusive": False, "policy": "p"},
        {"name": "s", "type": "stream", "durable": True, "exclusive": None, "policy": None, "arguments": []},
    ]
    assert {name: read_queue(name, each, {"p": POLICY}) for name, each in named(answers)} == {
        "q": Queue("q", QueueType.QUORUM, policy=POLICY),
        "s": Queue("s", None),
    }


@pytest.mark.parametrize(
    ("answer", "type_"),
    [
        ({"type": "classic"}, QueueType.CLASSIC),
        ({}, QueueType.CLASSIC),
        ({"arguments": {"x-queue-type": "quorum"}}, QueueType.QUORUM),
        ({"type": "rabbit_mqtt_qos0_queue"}, None),
    ],
)
def test_the_type_of_a_queue(answer: dict[str, object], type_: QueueType | None) -> None:
    assert vhost_state([], [{"name": "q", **answer}]).queues["q"].type is type_


def test_bindings_by_their_exchange_without_those_of_the_default_one() -> None:
    answers = [
        {"source": "", "destination": "q", "destination_type": "queue", "routing_key": "q", "arguments": {}},
        {"source": "x", "destination": "q", "destination_type": "queue", "routing_key": "k", "arguments": {}},
        {
            "source": "x",
            "destination": "y",
            "destination_type": "exchange",
            "routing_key": "",
            "arguments": {"a": True},
        },
    ]
    assert bindings_by_source(answers) == {
        "x": (Binding("k", (), "q"), Binding("", (("a", Field("t", True)),), "y", destination_is_exchange=True))
    }


def test_hops_of_travelling_bindings_have_the_plugins_tag() -> None:
    entry = {"cluster-name": "c", "vhost": "/", "exchange": "/:x A", "hops": 1}
    arguments = {"x-bound-from": [entry], "hops": 3}
    (binding,) = bindings_by_source([{"source": "x", "routing_key": "k", "arguments": arguments}])["x"]
    table = dict(binding.arguments)
    assert table["hops"] == Field("l", 3)
    (first,) = table["x-bound-from"].value
    assert dict(first.value)["hops"] == Field("s", 1)
    assert dict(first.value)["vhost"] == Field("S", "/")


@pytest.mark.parametrize("header", ["text", 3, [1, "a", None], [{"hops": "x"}], [{"hops": 70000}], {"hops": 1}])
def test_forged_headers_break_nothing(header: object) -> None:
    assert bindings_by_source([{"source": "x", "routing_key": "k", "arguments": {"x-bound-from": header}}])["x"]
