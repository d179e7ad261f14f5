"""Publishing: confirms, returns, refusals, and what closes the channel or the connection."""

from __future__ import annotations

from typing import Final

from agent.amqp.wire import frames, methods
from agent.amqp.wire.properties import EXPIRATION, USER_ID, Properties
from agent.amqp.wire.tables import short_string
from agent.core import fields
from agent.core.fields import Field, Table
from tests.contract.asking import Asking, Release, headers_of, with_headers
from tests.contract.in_channel import changed_in_channel

MIB: Final = 1024 * 1024
UNREADABLE: Final = "closed: 541 INTERNAL_ERROR"
LARGEST: Final = {"3.10": 128 * MIB, "4.0": 16 * MIB}
"""A body, unless an operator says otherwise."""
TOO_LARGE: Final = "406 PRECONDITION_FAILED - message size {} is larger than configured max size {}"
MOST_BEYOND_LIMIT: Final = 100
KEEPS_ORDER_OF_HEADERS: Final = {"3.10": True, "4.0": False}
"""From 4.0 on they are sorted by name."""


def texts(*values: str) -> Field:
    return fields.array(*map(fields.text, values))


async def test_confirms_and_returns(ask: Asking) -> None:
    """What no queue takes is returned, and then confirmed."""
    await ask.queue("q")
    await ask.exchange("bound to nothing", "fanout")
    assert await ask.publish("", "q") == "ack"
    assert await ask.publish("", "gone") == "returned 312 NO_ROUTE, ack"
    assert await ask.publish("bound to nothing", "k") == "returned 312 NO_ROUTE, ack"


async def test_exchanges_that_take_nothing(ask: Asking) -> None:
    await ask.exchange("internal", "fanout", internal=True)
    assert await ask.publish("gone", "k") == "404 NOT_FOUND - no exchange 'gone' in vhost 'V'"
    assert await ask.publish("internal", "k") == (
        "403 ACCESS_REFUSED - cannot publish to internal exchange 'internal' in vhost 'V'"
    )


async def test_a_full_queue_that_refuses(ask: Asking) -> None:
    """A quorum queue may take a few more."""
    for kind in ("classic", "quorum"):
        queue, line = f"full {kind}", await ask.line(confirms=True)
        await ask.queue(queue, {"x-queue-type": kind, "x-max-length": 1, "x-overflow": "reject-publish"})
        found = [await line.publish("", queue) for _ in range(2)]
        while kind == "quorum" and found[-1] == "ack" and len(found) < MOST_BEYOND_LIMIT:
            found.append(await line.publish("", queue))
        assert (found[0], found[-1]) == ("ack", "nack")


async def test_properties_that_close_the_channel(ask: Asking) -> None:
    def only(flag: int, text: str) -> bytes:
        return Properties(flag, ((flag, short_string(text)),)).write()

    await ask.queue("q")
    refused = "406 PRECONDITION_FAILED - "
    assert await ask.publish("", "q", only(USER_ID, "guest")) == "ack"
    assert await ask.publish("", "q", only(USER_ID, "somebody")) == (
        f"{refused}user_id property set to 'somebody' but authenticated user was 'U'"
    )
    assert await ask.publish("", "q", only(EXPIRATION, "soon")) == f"{refused}invalid expiration 'soon': no_integer"
    for name in ("CC", "BCC"):
        assert await ask.publish("", "q", with_headers(((name, fields.text("k")),))) == (
            f'{refused}invalid message: {{unacceptable_type_in_header,"{name}",longstr}}'
        )


async def test_content_that_closes_the_connection(ask: Asking) -> None:
    unknown_tag, cut_off = b"\x20\0\0\0\0\x04\x01aZ1", b"\x20\0\0\0\0\x09\x01at1"
    assert [await ask.publish("", "q", each) for each in (unknown_tag, cut_off)] == [UNREADABLE] * 2
    line, connection = await ask.line(), await ask.connection()
    line.channel.send(methods.BASIC_PUBLISH, routing_key="q")
    of_another_class = frames.BASIC_HEADER.pack(frames.BASIC + 1, 0, 1) + b"\0\0"
    connection.wire.write(frames.frame(frames.HEADER, line.channel.number, of_another_class))
    await line.until(lambda: line.end, "the connection is closed")
    of_its_class = "closed: 505 UNEXPECTED_FRAME - expected content header for class 60, got one for class 61"
    assert line.end.startswith(of_its_class)


async def test_a_body_that_is_too_large(ask: Asking, release: Release) -> None:
    """Of a limit of 128 MiB the channel is told a lower one: a broker says as much of that."""
    default = int(release.node.eval("{ok, Size} = application:get_env(rabbit, max_message_size), Size."))
    assert default == release.says(LARGEST)
    await ask.queue("own")
    line = await ask.line(confirms=True)
    await line.consume("own", "tag")
    largest = default if default == 16 * MIB else 1_000
    if largest != default:
        changed_in_channel(release, "own", default, largest)
    assert await line.publish("", "own", body=bytes(largest + 1)) == TOO_LARGE.format(largest + 1, largest)


async def test_copies(ask: Asking) -> None:
    """`CC` and `BCC` name further routing keys; only `BCC` isn't seen."""
    for queue in ("to", "cc 1", "cc 2", "bcc"):
        await ask.queue(queue)
    headers = ("CC", texts("cc 1", "cc 2")), ("BCC", texts("bcc")), ("n", fields.long(1))
    assert await ask.publish("", "to", with_headers(headers)) == "ack"
    for queue in ("to", "cc 1", "cc 2", "bcc"):
        [copy] = await ask.all_of(queue)
        assert headers_of(copy) == {"CC": ["cc 1", "cc 2"], "n": 1}
        assert copy.call["routing_key"] == "to"


async def test_headers_to_the_byte_but_for_their_order(ask: Asking, release: Release) -> None:
    headers: Table = (
        ("z", Field("s", -1)),
        ("x-received-from", fields.array(fields.table((("uri", fields.text("u")), ("redelivered", Field("t", True)))))),
        ("x-delivery-count", fields.long(7)),
        ("deep", fields.table((("b", Field("I", 1)), ("a", Field("b", -2))))),
        ("D", Field("D", b"\2\0\0\1\0")),
    )
    await ask.queue("headers")
    assert await ask.publish("", "headers", with_headers(headers)) == "ack"
    [came] = await ask.all_of("headers")
    by_name = tuple(sorted(headers, key=lambda each: each[0]))
    assert came.properties.write() == with_headers(headers if release.says(KEEPS_ORDER_OF_HEADERS) else by_name)
