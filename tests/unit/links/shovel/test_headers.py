"""What a shovel changes of messages, byte for byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.amqp.data.rewriting import Delivery, Rewriter, Untouched
from agent.amqp.wire.properties import FLAGS
from agent.amqp.wire.tables import decode_table, encode_table
from agent.core.addresses.uri import AmqpUri, parse
from agent.core.fields import Field, array, long, table, text
from agent.core.model import (
    ExchangeDestination,
    ExchangeSource,
    PublishProperties,
    QueueDestination,
    ShovelLink,
    ShovelSettings,
)
from agent.links.shovel.headers import rewriter
from tests.unit.core.some_links import shovel_link

DELIVERY = Delivery(b"x", b"k", False)
NOW = 1_700_000_000.9


def made(link: ShovelLink, destination: str = "amqp://me:secret@there", **settings: object) -> Rewriter:
    given = replace(link, shovel=replace(link.shovel, settings=ShovelSettings(**settings)))  # type: ignore[arg-type]
    uri: AmqpUri = parse(destination)
    return rewriter(given, source="amqp://from", destination=uri, shown=uri.safe, cluster="here", clock=lambda: NOW)


def to(link: ShovelLink, destination: QueueDestination | ExchangeDestination) -> ShovelLink:
    return replace(link, shovel=replace(link.shovel, destination=destination))


def entry(*names: tuple[str, str]) -> Field:
    return table(
        (
            ("shovelled-by", text("here")),
            ("shovel-type", text("dynamic")),
            ("shovel-name", text("s")),
            ("shovel-vhost", text("/")),
            ("src-uri", text("amqp://from")),
            ("dest-uri", text("amqp://there")),
            *((name, text(value)) for name, value in names),
        )
    )


def test_the_entry_of_x_shovelled_has_the_plugins_fields_in_its_order() -> None:
    link = to(shovel_link(), QueueDestination("d"))
    expected = (("x-shovelled", array(entry(("src-queue", "q"), ("dest-queue", "d")))),)
    assert made(link, add_forward_headers=True).entries(DELIVERY) == encode_table(expected)[4:]


@pytest.mark.parametrize(("forward", "timestamp"), [(True, True), (True, False), (False, True)])
def test_a_local_destination_gets_annotations_as_headers_in_place_of_earlier_ones(
    *, forward: bool, timestamp: bool
) -> None:
    link = to(shovel_link(), QueueDestination("d"))
    link = replace(link, shovel=replace(link.shovel, destination_is_local=True))
    found = made(link, add_forward_headers=forward, add_timestamp_header=timestamp)
    by = (
        ("x-opt-shovelled-by", text("here")),
        ("x-opt-shovel-type", text("dynamic")),
        ("x-opt-shovel-name", text("s")),
    )
    at = (("x-opt-shovelled-timestamp", long(1_700_000_000_000)),)
    expected = (by if forward else ()) + (at if timestamp else ())
    assert found.entries(DELIVERY) == encode_table(expected)[4:]
    former = tuple((name, text("former")) for name, _ in expected)
    assert found.rewrite(encode_table((("a", long(1)), *former)), DELIVERY) == encode_table((*expected, ("a", long(1))))
    assert set(found.marks) == {bytes([len(name)]) + name.encode() for name, _ in expected}


def test_the_names_of_exchanges_are_there_as_far_as_they_are_given() -> None:
    link = to(shovel_link(ExchangeSource("a")), ExchangeDestination(routing_key="r"))
    names = (("src-exchange", "a"), ("src-exchange-key", ""), ("dest-exchange-key", "r"))
    expected = (("x-shovelled", array(entry(*names))),)
    assert made(link, add_forward_headers=True).entries(DELIVERY) == encode_table(expected)[4:]


def test_an_earlier_shovels_entry_stays_behind_and_its_timestamp_is_replaced() -> None:
    link, earlier = shovel_link(), table((("shovelled-by", text("elsewhere")),))
    before = (("a", long(1)), ("x-shovelled", array(earlier)), ("x-shovelled-timestamp", long(5)), ("b", text("c")))
    found = made(link, add_forward_headers=True, add_timestamp_header=True)
    assert found.marks == (b"\x0bx-shovelled", b"\x15x-shovelled-timestamp")
    after = found.rewrite(encode_table(before), DELIVERY)
    assert isinstance(after, bytes)
    assert decode_table(after)[0] == (
        ("x-shovelled-timestamp", long(1_700_000_000)),
        ("a", long(1)),
        ("x-shovelled", array(entry(("src-queue", "q")), earlier)),
        ("b", text("c")),
    )
    assert encode_table(decode_table(after)[0]) == after


@pytest.mark.parametrize("junk", [text("forged"), table((("a", long(1)),)), long(1)])
def test_what_is_no_list_is_kept_among_the_invalid_headers(junk: Field) -> None:
    """As the plugin does it."""
    before = (("a", long(1)), ("x-shovelled", junk), ("b", text("c")))
    after = made(shovel_link(), add_forward_headers=True).rewrite(encode_table(before), DELIVERY)
    assert isinstance(after, bytes)
    found = dict(decode_table(after)[0])
    assert found["x-shovelled"] == array(entry(("src-queue", "q")))
    assert found["x-invalid-headers"] == table((("x-shovelled", array(junk)),))
    assert (found["a"], found["b"]) == (long(1), text("c"))


def test_items_that_are_no_tables_stay_in_the_list() -> None:
    before = (("x-shovelled", array(long(1), text("x"))),)
    after = made(shovel_link(), add_forward_headers=True).rewrite(encode_table(before), DELIVERY)
    assert isinstance(after, bytes)
    assert dict(decode_table(after)[0])["x-shovelled"] == array(entry(("src-queue", "q")), long(1), text("x"))


def test_the_timestamp_is_of_whole_seconds_and_written_anew_with_each() -> None:
    found = made(shovel_link(), add_timestamp_header=True)
    assert found.entries(DELIVERY) == encode_table((("x-shovelled-timestamp", Field("l", 1_700_000_000)),))[4:]
    assert found.version == 1_700_000_000


def test_only_the_connected_user_may_be_named() -> None:
    found = made(shovel_link())
    assert isinstance(found, Untouched)
    assert found.changes.users == frozenset({b"me"})
    assert made(shovel_link(), "amqps://me@there?auth_mechanism=external").changes.users == frozenset()


def test_properties_are_those_of_the_definition() -> None:
    wanted = PublishProperties(delivery_mode=2, content_type="text/plain", timestamp=1)
    values = made(shovel_link(), publish_properties=wanted).changes.values
    assert dict(values) == {
        FLAGS["delivery_mode"]: b"\2",
        FLAGS["content_type"]: b"\x0atext/plain",
        FLAGS["timestamp"]: b"\0\0\0\0\0\0\0\1",
    }
