"""What queue links do to headers, to the byte, whatever is in them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.data.rewriting import Delivery
from agent.amqp.wire.tables import CodecError, decode_table, encode_table, encode_value
from agent.core import fields
from agent.core.fields import Field, Table
from agent.links.queue.visits import VisitHeaders

URI, QUEUE = "amqp://there:5672/v", "work"
DELIVERY = Delivery(b"x", b"k", redelivered=False)


def headers_of() -> VisitHeaders:
    return VisitHeaders(URI, QUEUE, trust_user_id=False)


def entry(visits: int, *, redelivered: bool = False, uri: str = URI, queue: str = QUEUE) -> Field:
    return fields.table(
        (
            ("uri", fields.text(uri)),
            ("queue", fields.text(queue)),
            ("redelivered", fields.boolean(redelivered)),
            ("visit-count", fields.long(visits)),
        )
    )


ORIGINALS: Table = (("x-original-exchange", fields.text("x")), ("x-original-routing-key", fields.text("k")))


def rewritten(*headers: tuple[str, Field], delivery: Delivery = DELIVERY) -> Table:
    found = headers_of().rewrite(encode_table(headers), delivery)
    assert isinstance(found, bytes)
    return decode_table(found)[0]


def visits_of(table: Table) -> Any:
    received = fields.get(table, "x-received-from")
    assert received is not None
    return received.value


@pytest.mark.parametrize("redelivered", [False, True])
def test_the_first_hop(redelivered: bool) -> None:
    expected = (("x-received-from", fields.array(entry(1, redelivered=redelivered))), *ORIGINALS)
    made = headers_of().entries(Delivery(b"x", b"k", redelivered))
    assert made == encode_table(expected)[4:]
    assert b"\x0bvisit-countl\0\0\0\0\0\0\0\1" in made
    assert b"\x0bredeliveredt" + bytes([redelivered]) in made


def test_names_that_are_no_text_are_kept() -> None:
    made = headers_of().entries(Delivery(b"\xff\0", b"\xfe", redelivered=False))
    assert b"\x13x-original-exchangeS\0\0\0\2\xff\0\x16x-original-routing-keyS\0\0\0\1\xfe" in made


def test_a_message_of_another_link_keeps_where_it_came_from_at_first() -> None:
    other = entry(3, uri="amqp://elsewhere")
    came = (("a", fields.long(1)), ("x-received-from", fields.array(other)), ("x-original-exchange", fields.text("o")))
    assert rewritten(*came) == (
        ("a", fields.long(1)),
        ("x-received-from", fields.array(entry(1), other)),
        ("x-original-exchange", fields.text("o")),
    )


def test_an_earlier_visit_is_counted_on() -> None:
    others = [entry(3, uri="amqp://elsewhere"), entry(9, queue="other"), fields.boolean(True)]
    came = fields.array(others[0], entry(4, redelivered=True), *others[1:])
    assert visits_of(rewritten(("x-received-from", came))) == (entry(5), *others)


def test_the_highest_count_is_known() -> None:
    headers = headers_of()
    for visits in (4, 9, 2):
        headers.rewrite(encode_table((("x-received-from", fields.array(entry(visits))),)), DELIVERY)
    assert headers.most_visits == 10
    assert headers.revisited == 3


@pytest.mark.parametrize(
    ("forged", "visits"),
    [
        (fields.short(7), 8),
        (Field("b", 7), 8),
        (Field("I", 7), 8),
        (fields.long(-5), 1),
        (fields.long(2**63 - 1), 2**63 - 1),
        (fields.text("7"), 1),
        (Field("V", None), 1),
    ],
)
def test_counts_of_any_type(forged: Field, visits: int) -> None:
    earlier = fields.table((("visit-count", forged), ("queue", fields.text(QUEUE)), ("uri", fields.text(URI))))
    assert visits_of(rewritten(("x-received-from", fields.array(earlier)))) == (entry(visits),)


def test_a_header_of_another_type_is_kept_beside() -> None:
    assert rewritten(("x-received-from", fields.text("forged")), ("a", fields.long(1))) == (
        ("x-received-from", fields.array(entry(1))),
        *ORIGINALS,
        ("a", fields.long(1)),
        ("x-invalid-headers", fields.table((("x-received-from", fields.array(fields.text("forged"))),))),
    )


def test_forged_originals_of_a_first_hop_are_replaced() -> None:
    forged = [("x-original-exchange", fields.text("forged")), ("x-original-routing-key", fields.long(1))]
    assert rewritten(*forged, ("a", fields.long(1))) == (
        ("x-received-from", fields.array(entry(1))),
        *ORIGINALS,
        ("a", fields.long(1)),
    )


@pytest.mark.parametrize("received", [(), (("x-received-from", fields.array()),)])
def test_copies_are_sent_once(received: Table) -> None:
    """Every hop renames CC, of whatever type and however often it is there."""
    copies = fields.array(fields.text("q"))
    came = (*received, ("CC", copies), ("x-original-cc", fields.long(1)), ("CC", fields.text("w")))
    found = rewritten(*came)
    assert fields.get(found, "CC") is None
    assert [value for name, value in found if name == "x-original-cc"] == [copies]


VALUES = st.recursive(
    st.one_of(st.integers(-9, 9).map(fields.long), st.text(max_size=4).map(fields.text), st.just(Field("V", None))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda values: fields.array(*values)),
        st.lists(st.tuples(st.sampled_from(["uri", "queue", "visit-count", "n"]), inner), max_size=4).map(
            lambda entries: fields.table(tuple(entries))
        ),
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "x-received-from",
        "CC",
        "x-original-cc",
        "x-original-exchange",
        "x-original-routing-key",
        "x-invalid-headers",
        "a",
    ]
)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_no_shape_of_headers_breaks_anything(came: list[tuple[str, Field]]) -> None:
    found = rewritten(*came)
    assert visits_of(found)[0] == entry(1)
    assert fields.get(found, "CC") is None
    kept = [each for each in came if each[0] == "a"]
    assert [each for each in found if each[0] == "a"] == kept


@given(st.binary(max_size=80))
def test_bytes_that_are_no_table_are_refused(data: bytes) -> None:
    own = encode_value(entry(1))
    for junk in (data, b"\x0fx-received-fromA" + len(own + data).to_bytes(4, "big") + own + data):
        try:
            found = headers_of().rewrite(len(junk).to_bytes(4, "big") + junk, DELIVERY)
        except (CodecError, IndexError):
            continue
        assert isinstance(found, bytes)


def test_no_header_takes_long() -> None:
    own = (("uri", fields.text(URI)), ("queue", fields.text(QUEUE)))
    for items in (b"V" * 100_000, b"F\0\0\0\0" * 20_000, encode_value(fields.table(own)) * 2_000):
        received = items + encode_value(entry(1))
        data = b"\x0fx-received-fromA" + len(received).to_bytes(4, "big") + received
        table, headers = len(data).to_bytes(4, "big") + data, headers_of()
        begun = time.process_time()
        for _ in range(20):
            headers.rewrite(table, DELIVERY)
        assert time.process_time() - begun < 1 + 20 * 0.02
