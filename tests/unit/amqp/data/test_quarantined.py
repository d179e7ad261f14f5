"""What goes into a quarantine comes out as it was."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.data import header_table
from agent.amqp.data.header_table import Names
from agent.amqp.data.quarantined import Capture, Captured, Room, Why, enclosed, restored
from agent.amqp.data.rewriting import Delivery
from agent.amqp.wire.properties import EXPIRATION, FLAGS, HEADERS, USER_ID, Properties
from agent.amqp.wire.tables import CodecError, encode_table
from agent.core import fields
from agent.core.rules import quarantine
from tests.unit.amqp.wire.strategies import names, properties_with, values

WHY = Why("too_large", "0a1b2c3d", 1_700_000_000, b"fed.x", b"orders.eu", b"orders", b"orders.eu")
ROOM = 131_000
copies = st.tuples(st.sampled_from(["CC", "BCC"]), st.just(fields.array(fields.text("copy"))))
headers = st.lists(copies | st.tuples(names, values), max_size=4, unique_by=lambda entry: entry[0]).map(tuple)


@given(properties_with(headers))
def test_all_but_the_user_comes_out_again(properties: Properties) -> None:
    found = restored(enclosed(properties.write(), WHY, room=ROOM))
    assert found is not None and found.why == WHY
    expected = properties.lacking(USER_ID)
    if expected.raw_headers == b"\0\0\0\0":
        expected = expected.lacking(HEADERS)
    assert Properties.read(found.properties) == expected


@given(properties_with(headers))
def test_nothing_in_a_quarantine_expires_or_is_copied_or_belongs_to_somebody(properties: Properties) -> None:
    inside = Properties.read(enclosed(properties.write(), WHY, room=ROOM))
    assert inside.get(EXPIRATION) is None and inside.get(USER_ID) is None
    assert header_table.find(inside.raw_headers, Names("CC", "BCC")) is None


@pytest.mark.parametrize("properties", [b"", b"\x80\0\x09abc", b"\x20\0\0\0\0\4\1kZ!"])
def test_what_nobody_can_read_is_kept_whole(properties: bytes) -> None:
    found = restored(enclosed(properties, WHY, room=ROOM))
    assert found is not None and found.properties == properties


def test_headers_that_fill_a_frame_are_compressed_if_that_helps() -> None:
    def filled(value: str) -> bytes:
        table = encode_table((("x", fields.text(value)),))
        return Properties(0, ()).with_raw_headers(table).write()

    large = filled("x" * (ROOM - 100))
    inside = enclosed(large, WHY, room=ROOM)
    found = restored(inside)
    assert len(inside) <= ROOM and found is not None and found.properties == large
    assert len(enclosed(filled(os.urandom(ROOM // 2).hex() + "é" * 40), WHY, room=ROOM // 3)) > ROOM // 3


def test_forged_headers_of_a_quarantine_are_replaced() -> None:
    forged = encode_table(((quarantine.LINK, fields.text("other")), (quarantine.EXPIRATION, fields.text("1"))))
    found = restored(enclosed(Properties(0, ()).with_raw_headers(forged).write(), WHY, room=ROOM))
    assert found is not None and found.why == WHY
    assert found.properties == Properties(0, ()).write()


@pytest.mark.parametrize("time", [2**63, 253_402_300_800])
def test_a_time_that_no_calendar_has_is_not_ours(time: int) -> None:
    assert restored(enclosed(b"\0\0", replace(WHY, time=time), room=ROOM)) is None


def test_an_expiration_that_no_property_holds_is_refused() -> None:
    inside = Properties.read(enclosed(b"\0\0", WHY, room=ROOM))
    forged = inside.with_first_headers(header_table.text_entry(quarantine.EXPIRATION, b"9" * 256))
    with pytest.raises(CodecError):
        restored(forged.write())


def test_the_room_of_a_message_whose_rest_will_not_come_is_there_for_others() -> None:
    room, handed = Room(100), list[Captured]()
    capture = Capture(room, handed.append)
    for _ in range(3):
        assert capture.begin(1, WHY.reason, Delivery(b"x", b"k", False), properties=b"\0\0", size=60, excess=0)
        capture.add(b"a part")
        capture.abandon()
        assert not capture.is_collecting
    capture.abandon()
    assert (room.left, handed) == (100, [])


def test_what_was_never_in_one_is_recognized() -> None:
    assert restored(Properties(FLAGS["type"], ((FLAGS["type"], b"\1t"),)).write()) is None
