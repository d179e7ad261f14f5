"""Links under poison_search: all of each message is checked, and what closed the connection is known again."""

from __future__ import annotations

import pytest
from hypothesis import given

from agent.amqp.data.poison_check import PoisonCheck
from agent.amqp.wire.properties import Properties
from agent.core import fields
from agent.core.links.poison_search import WATCHED, PoisonSearch, Watch
from tests.unit.amqp.wire.link import Link, Sent, with_table
from tests.unit.amqp.wire.strategies import properties

NOW = 1_000.0
PUBLISH = b"publish to x with key k"


def raw(entries: bytes) -> bytes:
    return b"\x20\0" + len(entries).to_bytes(4, "big") + entries


@pytest.mark.parametrize("entries", [b"\1kZ!", b"\1kF\0\0\0\x20ab", b"\1kA\0\0\0\2Z!", b"\x09ab", b"\1k"])
async def test_headers_that_a_broker_could_not_read_are_held_and_the_link_stays_watched(entries: bytes) -> None:
    poison_search = PoisonSearch()
    link = await Link.made(poison_search=poison_search)
    await link.deliver(Sent(1, body=b"a"), Sent(2, properties=Properties(0x2000, ((0x2000, raw(entries)[2:]),))))
    await link.deliver(Sent(3, body=b"c"))
    assert [got.body for got in link.published()] == [b"a", b"c"]
    assert link.counts.unpublishable == {"unreadable": 1}
    assert poison_search.watch(link.clock.now + WATCHED - 1) is Watch.EXACT


@given(properties)
def test_whatever_can_be_read_passes(found: Properties) -> None:
    poison_check = PoisonCheck(PoisonSearch(), lambda: NOW, tuple)
    assert poison_check.objection(1, PUBLISH, found.write(), 10) == ""


def test_a_message_is_known_again_however_often_it_was_delivered() -> None:
    """Quorum queues put the number of deliveries among its headers."""
    poison_search, on_the_way = PoisonSearch(), [7]
    poison_check = PoisonCheck(poison_search, lambda: NOW, lambda: on_the_way)
    once = with_table(("a", fields.long(1)))
    again = with_table(("x-delivery-count", fields.long(2)), ("a", fields.long(1)))
    assert poison_check.objection(7, PUBLISH, once.write(), 10) == ""
    poison_search.broke(NOW, Watch.ONE_BY_ONE, poison_check.on_the_way)
    assert poison_check.objection(8, PUBLISH, again.write(), 10) == "closes_connection"
    assert poison_check.objection(9, PUBLISH, again.write(), 11) == ""
    assert poison_check.objection(10, PUBLISH + b"!", again.write(), 10) == ""
    assert poison_check.objection(11, PUBLISH, with_table(("a", fields.long(2))).write(), 10) == ""


def test_a_message_without_headers_is_known_again_too() -> None:
    poison_search = PoisonSearch()
    poison_check = PoisonCheck(poison_search, lambda: NOW, lambda: [1])
    assert poison_check.objection(1, PUBLISH, Properties(0, ()).write(), 10) == ""
    poison_search.broke(NOW, Watch.ONE_BY_ONE, poison_check.on_the_way)
    counted = with_table(("x-delivery-count", fields.long(1)))
    assert poison_check.objection(2, PUBLISH, counted.write(), 10) == "closes_connection"


def test_of_many_on_the_way_none_is_remembered_for_alone() -> None:
    poison_check = PoisonCheck(PoisonSearch(), lambda: NOW, lambda: range(1_000))
    for tag in range(1_000):
        poison_check.objection(tag, PUBLISH, Properties(0, ()).write(), tag)
    assert len(poison_check.on_the_way) == 1_000


def test_the_last_one_is_known_when_nothing_is_on_the_way_any_more() -> None:
    poison_search = PoisonSearch()
    poison_check = PoisonCheck(poison_search, lambda: NOW, tuple)
    assert poison_check.last == []
    for size in (10, 11):
        assert poison_check.objection(size, PUBLISH, Properties(0, ()).write(), size) == ""
    poison_search.broke(NOW, Watch.ONE_BY_ONE, poison_check.last)
    assert poison_check.objection(12, PUBLISH, Properties(0, ()).write(), 10) == ""
    assert poison_check.objection(13, PUBLISH, Properties(0, ()).write(), 11) == "closes_connection"
