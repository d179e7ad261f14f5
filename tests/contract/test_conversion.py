"""What RabbitMQ itself makes of a message that enters by one protocol and leaves by the other, from 4.3 on: the tables
of docs/amqp10-conversion.md, row by row. The agent does the same, but for what is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agent.amqp.wire.properties import FLAGS, HEADERS, Properties
from agent.amqp10 import sections
from agent.amqp10.conversion.message import to_091, to_10
from agent.amqp10.sections import FOOTER, SEQUENCE, VALUE, find_sections
from agent.amqp10.types import NULL, Value
from agent.core import fields
from agent.core.fields import Field
from agent.errors import BrokerError
from tests.contract.asking import Asking, Release, numbers
from tests.contract.conftest import HERE, installed
from tests.lab import releases
from tests.lab.amqp10_client import Amqp10Client
from tests.lab.node import Node
from tests.unit.amqp10.conversion_table import (
    KEPT,
    LONG,
    NOT_WHOLE,
    TO_091,
    TO_10,
    UUID,
    WHOLE,
    application,
    data,
    entries,
    noted,
    properties_091,
    properties_10,
    symbol,
    text,
)


def version(name: str) -> tuple[int, ...]:
    """Of an installed release; nothing if none is."""
    root = releases.HOST.root if name == HERE else releases.find(name).root
    return max(
        (numbers(each.name) for each in Path(root, "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")), default=()
    )


MEASURES: Final = [name for name in (HERE, *installed()) if version(name) >= (4, 3)]


@pytest.fixture(scope="session", params=MEASURES)
def node(request: pytest.FixtureRequest, broker_on: Callable[..., Node]) -> Node:
    return broker_on(None if request.param == HERE else request.param)


@pytest.fixture(scope="module")
def amqp10(release: Release) -> Iterator[Amqp10Client]:
    with Amqp10Client(release.node, release.vhost) as client:
        yield client


async def to_a_consumer_of_0_9_1(
    ask: Asking, amqp10: Amqp10Client, queue: str, *parts: bytes
) -> tuple[dict[str, Any], bytes] | str:
    """A durable message of AMQP 1.0: its properties but for that, and its body."""
    await ask.queue(queue)
    sent = amqp10.send_bytes(queue, b"".join((sections.HEADER.encode(durable=True), *parts)))
    if sent != "accepted":
        return sent
    try:
        [message] = await ask.all_of(queue)
    except BrokerError as error:
        return ask.read(error)
    found = read_091(message.properties)
    assert found.pop("delivery_mode") == b"\x02"
    return found, message.body


async def to_a_consumer_of_1_0(
    ask: Asking, amqp10: Amqp10Client, queue: str, properties: bytes, body: bytes = b"m"
) -> dict[str, Any] | str:
    """A message of 0-9-1."""
    await ask.queue(queue)
    assert await ask.publish("", queue, properties, body) == "ack"
    taken = amqp10.take_bytes(queue)
    return taken if isinstance(taken, str) else read_10(taken)


def read_091(properties: Properties) -> dict[str, Any]:
    """By name; the headers without their order, which AMQP 1.0 doesn't keep."""
    found: dict[str, Any] = {name: value for name, flag in FLAGS.items() if (value := properties.get(flag)) is not None}
    found.pop("headers", None)
    return {**found, "headers": dict(properties.headers)} if properties.get(HEADERS) else found


def read_10(message: bytes) -> dict[str, Any]:
    """By section; without what counts a broker's deliveries."""
    found = find_sections(message)
    header = dict(sections.header(message, found))
    del header["first_acquirer"], header["delivery_count"]
    return {
        "header": header,
        "properties": {name: value for name, value in sections.properties(message, found).items() if value is not None},
        **{
            name: {key.value: value for key, value in sections.pairs(message, getattr(found, name))}
            for name in ("message_annotations", "application_properties", "footer")
        },
        "body": list(sections.values(message, found.body)),
    }


# Values

CLOSED: Final = "closed: 541 INTERNAL_ERROR"
"""What a consumer of 0-9-1 gets in place of some messages of AMQP 1.0, whoever sent them, at each delivery."""
UNUSABLE: Final = (
    Value("uuid", UUID),
    Value("char", ord("é")),
    Value("char", 0xD800),
    Value("char", 2**32 - 1),
    entries((Value("int", 5), text("v")), key="symbol"),
)
UNANSWERED: Final = Value("described", (symbol("d"), text("v")))
"""A broker says nothing to who sends this."""
OTHERWISE_091: Final = {
    Value("ulong", 2**63): Field("l", -(2**63)),
    Value("timestamp", -1): Field("T", 0),
}
"""What brokers make of values that the agent treats otherwise."""
INTERNAL: Final = "amqp:internal-error"


async def test_values_as_headers(ask: Asking, amqp10: Amqp10Client) -> None:
    rows = [row for row in TO_091 if row[0] not in UNUSABLE and row[0] != UNANSWERED]
    expected = {
        f"k{place}": field for place, row in enumerate(rows) if (field := OTHERWISE_091.get(row[0], row[1])) is not None
    }
    values = [(f"k{place}", row[0]) for place, row in enumerate(rows)]
    found = await to_a_consumer_of_0_9_1(ask, amqp10, "values", application(*values), data())
    assert found == ({"headers": expected}, b"m")
    found = await to_a_consumer_of_0_9_1(ask, amqp10, "annotated", noted(*((f"x-{k}", v) for k, v in values)), data())
    assert found == ({"headers": {f"x-{name}": field for name, field in expected.items()}}, b"m")


@pytest.mark.parametrize("value", UNUSABLE, ids=lambda each: str(each)[:30])
async def test_values_that_close_the_connection_of_a_consumer_of_0_9_1(
    ask: Asking, amqp10: Amqp10Client, value: Value
) -> None:
    """The agent passes on what of them 0-9-1 can hold."""
    for queue, part in (("unusable", application(("k", value))), ("unusable note", noted(("x-k", value)))):
        assert await to_a_consumer_of_0_9_1(ask, amqp10, f"{queue} {value}"[:60], part, data()) == CLOSED


async def test_a_value_that_no_broker_answers(ask: Asking, release: Release) -> None:
    with Amqp10Client(release.node, release.vhost, patience=5) as amqp10:
        found = await to_a_consumer_of_0_9_1(ask, amqp10, "described", application(("k", UNANSWERED)), data())
    assert "timed out" in str(found)


async def test_headers_as_values(ask: Asking, amqp10: Amqp10Client) -> None:
    rows = [row for row in TO_10 if row[0].tag not in "DT"]
    for prefix, section in (("k", "application_properties"), ("x-k", "message_annotations")):
        headers = [(f"{prefix}{place}", row[0]) for place, row in enumerate(rows)]
        found = await to_a_consumer_of_1_0(ask, amqp10, f"headers {prefix}", properties_091(headers))
        assert isinstance(found, dict)
        place = {"x-exchange": text(""), "x-routing-key": text(f"headers {prefix}")} if prefix == "x-k" else {}
        assert found[section] == {**place, **{f"{prefix}{place}": row[1] for place, row in enumerate(rows)}}


async def test_headers_that_brokers_cannot_hold(ask: Asking, amqp10: Amqp10Client) -> None:
    """A time wraps; a decimal number closes the connection; arrays and tables are lost. The agent leaves the first two
    out, and keeps the last in an annotation."""
    late = [("k", Field("T", 2**62))]
    found = await to_a_consumer_of_1_0(ask, amqp10, "late", properties_091(late, timestamp=2**62))
    assert isinstance(found, dict)
    assert (found["application_properties"], found["properties"]) == (
        {"k": Value("timestamp", 0)},
        {"creation_time": 0},
    )
    nested = [("array", fields.array()), ("table", fields.table(()))]
    found = await to_a_consumer_of_1_0(ask, amqp10, "nested", properties_091(nested))
    assert isinstance(found, dict)
    assert (found["application_properties"], len(found["message_annotations"])) == ({}, 2)
    for name in ("k", "x-k"):
        decimal = [(name, Field("D", b"\x02\0\0\0\5"))]
        assert INTERNAL in str(await to_a_consumer_of_1_0(ask, amqp10, f"decimal {name}", properties_091(decimal)))


# Properties

OTHERWISE: Final[list[tuple[dict[str, Any], dict[str, bytes] | str]]] = [
    ({"content_type": LONG}, CLOSED),
    ({"reply_to": text("/queue/q")}, {"reply_to": b"\x08/queue/q"}),
    ({"reply_to": text("/queues/a b")}, {}),
    ({"creation_time": -1}, {"timestamp": bytes(8)}),
    ({"correlation_id": text("\udcff")}, {"correlation_id": b"\x01\xff"}),
]


@pytest.mark.parametrize("properties", [row[0] for row in (*WHOLE, *NOT_WHOLE)], ids=lambda each: str(each)[:40])
async def test_properties_as_those_of_0_9_1(ask: Asking, amqp10: Amqp10Client, properties: dict[str, Any]) -> None:
    """Brokers do as the agent does, but that they don't keep what 0-9-1 has no place for."""
    sent = properties | ({"user_id": b"guest"} if "user_id" in properties else {})
    parts = (properties_10(**sent), data())
    found = await to_a_consumer_of_0_9_1(ask, amqp10, f"properties {sent}"[:200], *parts)
    message = b"".join(parts)
    ours = read_091(Properties.read(to_091(message, find_sections(message)).properties))
    if KEPT in ours.get("headers", {}):
        del ours["headers"][KEPT]
        if not ours["headers"]:
            del ours["headers"]
    natively: Any = next((each for row, each in OTHERWISE if row == properties), ours)
    assert found == (natively if isinstance(natively, str) else (natively, b"m"))


@pytest.mark.parametrize("properties", [row[0] for row in NOT_WHOLE], ids=lambda each: str(each)[:40])
async def test_properties_that_a_header_keeps(ask: Asking, amqp10: Amqp10Client, properties: dict[str, Any]) -> None:
    """Messages of AMQP 1.0 that the agent brings by 0-9-1 leave the broker by AMQP 1.0 as they were."""
    message = properties_10(**properties) + data()
    converted = to_091(message, find_sections(message))
    found = await to_a_consumer_of_1_0(ask, amqp10, f"kept {properties}"[:200], converted.properties, converted.body)
    assert isinstance(found, dict)
    assert (found["properties"], found["body"]) == (properties, [Value("binary", b"m")])


MESSAGES_091: Final = [
    (b"\0\0", b""),
    (
        properties_091(
            content_type="text/plain",
            content_encoding="gzip",
            delivery_mode=2,
            priority=7,
            correlation_id="c",
            reply_to="replies to/é+",
            expiration="60000",
            message_id="m",
            timestamp=1_700_000_000,
            type="t",
            user_id="guest",
            app_id="app",
            cluster_id="c",
        ),
        b"body",
    ),
    (properties_091(delivery_mode=1, priority=255, expiration=str(2**32 - 1)), b"m"),
    (properties_091(message_id="urn:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f"), b"m"),
    (properties_091(message_id="urn:uuid:0001020304050607-0809-0a0b0c0d0e0f--"), b"m"),
    (properties_091([("CC", fields.array(Field("S", "elsewhere"))), ("timestamp_in_ms", Field("l", 5))]), b"m"),
    (properties_091([("x-death", fields.array(fields.table((("count", Field("l", 1)),))))]), b"m"),
    (properties_091([("x-exchange", Field("S", "forged")), ("x-routing-key", Field("S", "forged"))]), b"m"),
]


@pytest.mark.parametrize(("properties", "body"), MESSAGES_091, ids=lambda each: str(each)[:40])
async def test_messages_of_0_9_1(ask: Asking, amqp10: Amqp10Client, properties: bytes, body: bytes) -> None:
    queue = f"message {properties!r}"[:200]
    found = await to_a_consumer_of_1_0(ask, amqp10, queue, properties, body)
    assert found == read_10(to_10(properties, body, b"", queue.encode()).message)


# Headers of AMQP 1.0, annotations and bodies


AS_OURS: Final = [
    [data()],
    [noted(("x-a", text("note"))), application(("x-a", text("value")), ("a", text("1")), ("a", text("2"))), data()],
    [application((LONG, NULL), ("k", NULL)), data()],
    [
        noted(
            ("x-basic-type", text("t")),
            ("x-cc", Value("list", (text("k2"),))),
            ("x-opt-rabbitmq-received-time", Value("timestamp", 5_001)),
        ),
        data(),
    ],
    [data(b"a"), data(b"b")],
    [data(), sections.section(FOOTER, entries(("x-f", text("v")), key="symbol"))],
    [sections.section(VALUE, text("v"))],
    [sections.section(SEQUENCE, Value("list", (text("v"),))) * 2],
    [sections.section(VALUE, NULL), sections.section(FOOTER, entries(("x-f", text("v")), key="symbol"))],
]


@pytest.mark.parametrize("parts", AS_OURS, ids=range(len(AS_OURS)))
async def test_messages_of_amqp_1_0(ask: Asking, amqp10: Amqp10Client, parts: list[bytes]) -> None:
    message = b"".join(parts)
    found = await to_a_consumer_of_0_9_1(ask, amqp10, f"parts {AS_OURS.index(parts)}", message)
    ours = to_091(message, find_sections(message))
    assert found == (read_091(Properties.read(ours.properties)), ours.body)


@pytest.mark.parametrize(
    ("properties", "body"),
    [
        (properties_091(type="amqp-1.0"), b"junk"),
        *((properties_091([(f"{KEPT[:11]}{name}", Field("S", "junk"))]), b"m") for name in ("properties", "footer")),
    ],
)
async def test_what_closes_the_connection_of_a_consumer_of_1_0(
    ask: Asking, amqp10: Amqp10Client, properties: bytes, body: bytes
) -> None:
    """The agent takes the one as data, and leaves the other out."""
    assert INTERNAL in str(await to_a_consumer_of_1_0(ask, amqp10, f"junk {properties!r}"[:200], properties, body))


async def test_the_header_of_amqp_1_0(ask: Asking, amqp10: Amqp10Client) -> None:
    await ask.queue("header")
    for given in ({"durable": True, "priority": 7, "ttl": 60_000}, {"durable": False}, {}, None):
        header = b"" if given is None else sections.HEADER.encode(**given)
        assert amqp10.send_bytes("header", header + data()) == "accepted"
    full, other, empty, absent = [read_091(message.properties) for message in await ask.all_of("header")]
    assert full == {"delivery_mode": b"\x02", "priority": b"\x07", "expiration": b"\x0560000"}
    assert (other, empty, absent) == ({}, {}, {})


async def test_dead_letters(ask: Asking, amqp10: Amqp10Client) -> None:
    """As the agent reads AMQP 1.0's, so does the broker tell consumers of 0-9-1."""
    await ask.queue("dead")
    for queue in ("dies", "dies too"):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 1}
        await ask.queue(queue, arguments)
    for _ in range(2):
        assert amqp10.send_bytes("dies", sections.HEADER.encode(ttl=60_000) + data()) == "accepted"
    message = amqp10.take_bytes("dead")
    assert isinstance(message, bytes)
    ours = read_091(Properties.read(to_091(message, find_sections(message)).properties))["headers"]
    [other] = await ask.all_of("dead")
    for headers in (ours, theirs := read_091(other.properties)["headers"]):
        [death] = headers["x-death"].value
        headers["x-death"] = {name: field for name, field in death.value if name != "time"}
    assert ours == theirs
