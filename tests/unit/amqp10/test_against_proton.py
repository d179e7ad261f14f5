"""Debian's python3-qpid-proton reads what we write, and we read what it writes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp10 import performatives, sections
from agent.amqp10.types import NULL, Array, Value, decode, encode
from tests.unit.amqp10.strategies import plain_scalars, plain_values

PYTHON = os.environ.get("FEDERATION_AGENT_SYSTEM_PYTHON", "/usr/bin/python3")  # the one that Debian's packages are for
PEER = Path(__file__).with_name("proton_peer.py")


class Proton:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, *request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        result = json.loads(self._process.stdout.readline())
        assert "answer" in result, result
        return result["answer"]


@pytest.fixture(scope="module")
def proton() -> Iterator[Proton]:
    has_it = subprocess.run([PYTHON, "-c", "import proton"], capture_output=True, text=True, check=False)
    assert has_it.returncode == 0, f"python3-qpid-proton is missing, `make setup` installs it: {has_it.stderr}"
    with subprocess.Popen([PYTHON, PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Proton(process)
        assert process.stdin is not None
        process.stdin.close()


def as_tree(value: Value) -> list[Any]:
    """The value as the peer writes it down."""
    name, plain = value
    match name:
        case "list" | "described":
            return [name, [as_tree(item) for item in plain]]
        case "map":
            return [name, [as_tree(item) for pair in plain for item in pair]]
        case "array":
            return [name, array_as_tree(plain)]
        case "float" | "double":
            return [name, plain.hex()]
        case _:
            return [name, plain.hex() if isinstance(plain, bytes) else plain]


def array_as_tree(array: Array) -> list[Any]:
    descriptor, after = decode(array.constructor, 1) if array.constructor[0] == 0 else (None, 0)
    inner = [item if descriptor is None else item.value[1] for item in array.items]
    name = ITEM_TYPES[array.constructor[after]]
    return [None if descriptor is None else as_tree(descriptor), name, [as_tree(item) for item in inner]]


ITEM_TYPES = {
    0x50: "ubyte", 0x51: "byte", 0x52: "uint", 0x53: "ulong", 0x54: "int", 0x55: "long", 0x56: "boolean",
    0x60: "ushort", 0x61: "short", 0x70: "uint", 0x71: "int", 0x72: "float", 0x73: "char", 0x74: "decimal32",
    0x80: "ulong", 0x81: "long", 0x82: "double", 0x83: "timestamp", 0x84: "decimal64", 0x94: "decimal128",
    0x98: "uuid", 0xA0: "binary", 0xA1: "string", 0xA3: "symbol", 0xB0: "binary", 0xB1: "string", 0xB3: "symbol",
}  # fmt: skip


@given(plain_values)
def test_proton_reads_our_values(proton: Proton, value: Value) -> None:
    assert proton("decode", encode(value).hex()) == [as_tree(value)]


@given(st.one_of(*plain_scalars.values()))
def test_scalars_are_written_as_proton_writes_them(proton: Proton, value: Value) -> None:
    assert encode(value).hex() == proton("encode", as_tree(value))


@given(plain_values)
def test_we_read_values_of_proton(proton: Proton, value: Value) -> None:
    theirs = bytes.fromhex(proton("encode", as_tree(value)))
    found, end = decode(theirs)
    assert end == len(theirs)
    assert as_tree(found) == as_tree(value)
    assert proton("decode", encode(found).hex()) == [as_tree(value)]


def text(plain: str) -> Value:
    return Value("string", plain)


def symbol(plain: str) -> Value:
    return Value("symbol", plain)


UUID = Value("uuid", bytes(range(16)))
FIELDS: dict[str, Any] = {
    "durable": True,
    "priority": 7,
    "ttl": 60,  # seconds; on the wire milliseconds
    "first_acquirer": True,
    "delivery_count": 3,
    "id": as_tree(Value("ulong", 5)),
    "user_id": as_tree(Value("binary", b"guest")),
    "address": "/queues/orders",
    "subject": "new",
    "reply_to": "/queues/answers",
    "correlation_id": as_tree(UUID),
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "expiry_time": 1.5,
    "creation_time": 2.25,
    "group_id": "group",
    "group_sequence": 9,
    "reply_to_group_id": "answers",
    "instructions": {"x-opt-di": "hop"},
    "annotations": {"x-opt-ma": as_tree(Value("uint", 1))},
    "properties": {"a": "text", "b": as_tree(Value("long", 2)), "c": True, "d": None},
}
HEADER = {"durable": True, "priority": 7, "ttl": 60_000, "first_acquirer": True, "delivery_count": 3}
PROPERTIES = {
    "message_id": Value("ulong", 5),
    "user_id": b"guest",
    "to": text("/queues/orders"),
    "subject": "new",
    "reply_to": text("/queues/answers"),
    "correlation_id": UUID,
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "absolute_expiry_time": 1500,
    "creation_time": 2250,
    "group_id": "group",
    "group_sequence": 9,
    "reply_to_group_id": "answers",
}
ANNOTATIONS = ((symbol("x-opt-ma"), Value("uint", 1)),)
APPLICATION = (
    (text("a"), text("text")),
    (text("b"), Value("long", 2)),
    (text("c"), Value("boolean", True)),
    (text("d"), NULL),
)
BODIES = {
    "data": (Value("binary", b"body"), True, sections.DATA),
    "sequence": (Value("list", (text("a"), NULL)), True, sections.SEQUENCE),
    "value": (text("body"), False, sections.VALUE),
}


@pytest.mark.parametrize(("body", "inferred", "kind"), BODIES.values(), ids=BODIES)
def test_we_find_everything_in_a_message_of_proton(proton: Proton, body: Value, inferred: bool, kind: int) -> None:
    message = bytes.fromhex(proton("write", {**FIELDS, "body": as_tree(body)}, inferred))
    found = sections.find_sections(message)
    assert sections.header(message, found) == HEADER
    assert sections.properties(message, found) == PROPERTIES
    assert sections.pairs(message, found.delivery_annotations) == ((symbol("x-opt-di"), text("hop")),)
    assert sections.pairs(message, found.message_annotations) == ANNOTATIONS
    assert sections.pairs(message, found.application_properties) == APPLICATION
    assert list(sections.values(message, found.body)) == [body]
    assert (found.body_kind, found.footer) == (kind, (len(message), len(message)))


def test_we_find_what_little_is_in_an_empty_message_of_proton(proton: Proton) -> None:
    message = bytes.fromhex(proton("write", {}, False))
    found = sections.find_sections(message)
    assert sections.header(message, found)["priority"] is None
    assert set(sections.properties(message, found).values()) == {None}
    assert sections.pairs(message, found.application_properties) == ()
    assert (found.body_kind, found.body) == (None, (len(message), len(message)))


@pytest.mark.parametrize(("body", "inferred", "kind"), BODIES.values(), ids=BODIES)
def test_proton_finds_everything_in_our_messages(proton: Proton, body: Value, inferred: bool, kind: int) -> None:
    message = b"".join(
        [
            sections.HEADER.encode(**HEADER),
            sections.section(sections.DELIVERY_ANNOTATIONS, Value("map", ((symbol("x-opt-di"), text("hop")),))),
            sections.section(sections.MESSAGE_ANNOTATIONS, Value("map", ANNOTATIONS)),
            sections.PROPERTIES.encode(**PROPERTIES),
            sections.section(sections.APPLICATION_PROPERTIES, Value("map", APPLICATION)),
            sections.section(kind, body),
        ]
    )
    theirs = proton("write", {**FIELDS, "body": as_tree(body)}, inferred)
    names = [*FIELDS, "body"]
    assert proton("read", message.hex(), names) == proton("read", theirs, names)


def test_proton_understands_our_performatives_and_we_those_of_proton(proton: Proton) -> None:
    """A whole connection, so that every performative is seen by a client that acts on it."""
    source = performatives.SOURCE.encode(
        address="here", filter={"f": Value("described", (symbol("x:f"), Value("uint", 3)))}
    )
    target = performatives.TARGET.encode(address="/queues/orders", durable=2, capabilities=("queue", "topic"))
    refused = performatives.ERROR.encode(condition="amqp:not-allowed", description="not now")
    first = [
        performatives.OPEN.encode(container_id="agent", max_frame_size=600, properties={"product": text("agent")}),
        performatives.BEGIN.encode(remote_channel=0, next_outgoing_id=0, incoming_window=10, outgoing_window=10),
        performatives.ATTACH.encode(name="link", handle=0, role=True, source=source, target=target),
        performatives.FLOW.encode(
            next_incoming_id=0, incoming_window=10, next_outgoing_id=0, outgoing_window=10, handle=0, delivery_count=0,
            link_credit=5,
        ),
    ]  # fmt: skip
    second = [
        performatives.DISPOSITION.encode(
            role=True, first=0, settled=True, state=performatives.MODIFIED.encode(delivery_failed=True)
        ),
        performatives.DETACH.encode(handle=0, closed=True, error=refused),
        performatives.END.encode(),
        performatives.CLOSE.encode(error=refused),
    ]
    sent = [b"".join(performatives.frame(0, body) for body in bodies) for bodies in (first, second)]
    payload = bytes(range(256)) * 3
    done = proton(
        "talk", (performatives.PROTOCOL_HEADER + performatives.EMPTY + sent[0]).hex(), sent[1].hex(), payload.hex()
    )
    seen = done["seen"]
    assert seen.pop("properties") == "{symbol('product'): 'agent'}"
    assert "x:f" in seen.pop("filter")
    assert "amqp:not-allowed" in seen.pop("link") and "not now" in seen.pop("closed")
    assert seen == {
        "container": "agent", "max_frame_size": 600, "credit": 5, "source": "here", "target": "/queues/orders",
        "state": "MODIFIED", "settled": True,
    }  # fmt: skip
    check_frames_of_proton(bytes.fromhex(done["output"]), payload)


def check_frames_of_proton(output: bytes, payload: bytes) -> None:
    assert output[:8] == performatives.PROTOCOL_HEADER
    at, carried = 8, b""
    found: dict[str, performatives.Performed] = {}
    while at < len(output):
        kind, channel, start, at = performatives.find_frame(output, at, 600) or pytest.fail("a frame is cut off")
        assert (kind, channel) == (performatives.AMQP, 0)
        if start < at:
            performed, end = performatives.decode(output, start, end=at)
            found.setdefault(performed.performative.name, performed)
            carried += output[end:at]
    assert carried == payload
    assert list(found) == ["open", "begin", "attach", "transfer", "detach", "end", "close"]
    assert found["open"]["container_id"] == "proton"
    assert found["open"]["properties"] == {"product": text("proton")}
    assert found["open"]["channel_max"] == 32767
    assert found["attach"]["target"]["address"] == text("/queues/orders")
    assert found["attach"]["snd_settle_mode"] == 2
    assert found["attach"]["source"]["expiry_policy"] == "session-end"
    assert (found["transfer"]["delivery_tag"], found["transfer"]["more"]) == (b"tag", True)
    assert found["close"]["error"]["description"] == "it is over"
