"""What the plugin for AMQP 1.0 of RabbitMQ 3 makes of messages: it keeps sections in headers, which the agent reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from agent.amqp10 import sections, types
from agent.amqp10.conversion.message import to_091, to_10
from agent.amqp10.sections import FOOTER, VALUE, find_sections
from agent.amqp10.types import Value
from agent.core.fields import Field
from tests.contract.asking import Asking, Release
from tests.contract.conftest import HERE, installed
from tests.contract.test_conversion import read_10, version
from tests.lab.amqp10_client import Amqp10Client
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.unit.amqp10.conversion_table import (
    UUID,
    application,
    data,
    entries,
    noted,
    properties_091,
    properties_10,
    symbol,
    text,
)

pytestmark = pytest.mark.thorough

BEFORE_4 = [name for name in (HERE, *installed()) if () < version(name) < (4,)]
VHOST = "contract plugin"


@pytest.fixture(scope="module", params=BEFORE_4)
def plugin_node(request: pytest.FixtureRequest, broker_on: Callable[..., Node]) -> Iterator[Node]:
    name = None if request.param == HERE else request.param
    node = broker_on(name, plugins=(*DEFAULT_PLUGINS, "rabbitmq_amqp1_0"), name="plugin")
    with node.admin.temporary_vhost(VHOST):
        yield node


@pytest.fixture
def plugin(plugin_node: Node) -> Iterator[Amqp10Client]:
    with Amqp10Client(plugin_node, VHOST, is_old=True) as client:
        yield client


@pytest.fixture
async def ask_beside(plugin_node: Node) -> AsyncIterator[Asking]:
    asking = Asking(Release(plugin_node, "3", VHOST))
    yield asking
    await asking.close()


async def test_messages_of_0_9_1(ask_beside: Asking, plugin: Amqp10Client) -> None:
    """Headers are lost, the time is in seconds, and the user is a string."""
    properties = properties_091(
        [("a", Field("S", "b"))],
        delivery_mode=2,
        priority=3,
        expiration="60000",
        message_id="m",
        correlation_id="c",
        reply_to="r",
        content_type="t",
        timestamp=1_700_000_000,
        type="kind",
        user_id="guest",
        app_id="app",
    )
    await ask_beside.queue("q")
    assert await ask_beside.publish("", "q", properties) == "ack"
    message = plugin.take_bytes("q")
    assert isinstance(message, bytes)
    found = find_sections(message)
    listed, _ = types.decode(message, found.properties[0] + 3)
    assert [value for value in listed.value if value.type != "null"] == [
        text("m"),
        text("guest"),
        text("q"),
        text("/queue/r"),
        text("c"),
        symbol("t"),
        Value("timestamp", 1_700_000_000),
    ]
    for absent in (found.message_annotations, found.application_properties):
        assert absent[0] == absent[1]
    ours = to_091(message, found)
    back = read_10(to_10(ours.properties, ours.body, b"", b"").message)["properties"]
    assert back["user_id"] == b"guest"
    assert not ours.lost


async def test_messages_of_amqp_1_0(ask_beside: Asking, plugin: Amqp10Client) -> None:
    """What the agent takes by 0-9-1, and brings to AMQP 1.0, is what was sent."""
    footer = sections.section(FOOTER, entries(("x-f", text("v")), key="symbol"))
    parts = [
        noted(("x-a", text("note"))),
        properties_10(message_id=text("m"), to=text("t"), subject="s", creation_time=1_001),
        application(("k", Value("uuid", UUID)), ("l", Value("ulong", 2**64 - 1))),
    ]
    await ask_beside.queue("q")
    for tail in (data() + footer, sections.section(VALUE, text("v")) + footer):
        message = b"".join([sections.HEADER.encode(durable=True), *parts, tail])
        assert plugin.send_bytes("q", message) == "accepted"
        [taken] = await ask_beside.all_of("q")
        converted = to_10(taken.properties.write(), taken.body, b"", b"")
        sent, got = read_10(message), read_10(converted.message)
        got["message_annotations"] = {"x-a": got["message_annotations"]["x-a"]}
        assert (got, converted.lost) == (sent, set())


async def test_properties_that_a_header_keeps(ask_beside: Asking, plugin: Amqp10Client) -> None:
    message = properties_10(to=text("t"), subject="s", message_id=Value("ulong", 5), creation_time=1_001) + data()
    ours = to_091(message, find_sections(message))
    await ask_beside.queue("q")
    assert await ask_beside.publish("", "q", ours.properties, ours.body) == "ack"
    taken = plugin.take_bytes("q")
    assert isinstance(taken, bytes)
    assert read_10(taken)["properties"] == read_10(message)["properties"]
