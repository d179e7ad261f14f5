from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire.tables import CodecError
from agent.amqp10 import frames
from agent.amqp10.frames import check_header, find_frame, frame

LARGEST = 600


@given(
    st.integers(0, 2**16 - 1),
    st.binary(max_size=40),
    st.sampled_from([frames.AMQP, frames.SASL]),
    st.binary(max_size=9),
)
def test_a_frame_is_found_where_it_is(channel: int, body: bytes, kind: int, more: bytes) -> None:
    data = b"before" + frame(channel, body, kind) + more
    found = find_frame(data, 6, LARGEST)
    assert found == (kind, channel, 14, 14 + len(body))
    for length in range(14 + len(body)):
        assert find_frame(data[:length], 6, LARGEST) is None


def test_a_frame_may_be_as_large_as_was_agreed() -> None:
    data = frame(1, b"x" * (LARGEST - frames.OVERHEAD))
    assert find_frame(data, 0, LARGEST) == (frames.AMQP, 1, 8, LARGEST)


def test_a_body_begins_behind_an_extended_header() -> None:
    data = b"\0\0\0\x0e\x03\0\0\x01" + b"more" + b"ab"
    assert find_frame(data, 0, LARGEST) == (frames.AMQP, 1, 12, 14)


def test_the_heartbeat_is_a_frame_without_a_body() -> None:
    assert find_frame(frames.EMPTY, 0, frames.SMALLEST) == (frames.AMQP, 0, 8, 8)


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        ("00000007 02 00 0000", "7 bytes"),
        ("00000000 02 00 0000", "0 bytes"),
        ("00000259 02 00 0000", "601 bytes is larger"),
        ("ffffffff 02 00 0000", "larger"),
        ("00000008 01 00 0000", "byte 4"),
        ("00000008 03 00 0000", "byte 12"),
        ("00000008 02 02 0000", "type 2"),
    ],
)
def test_a_wrong_frame_is_refused_before_it_is_there_as_a_whole(data: str, wrong: str) -> None:
    with pytest.raises(CodecError, match=wrong):
        find_frame(bytes.fromhex(data), 0, LARGEST)


@given(st.binary(max_size=30))
def test_garbage_is_a_frame_or_an_error(data: bytes) -> None:
    try:
        found = find_frame(data, 0, LARGEST)
    except CodecError:
        return
    if found is not None:
        _, _, start, end = found
        assert 8 <= start <= end <= len(data)


@pytest.mark.parametrize(
    ("received", "wrong"),
    [
        (b"AMQP\x00\x00\x09\x01", "0.9.1.*plugin"),
        (b"AMQP\x02\x01\x00\x00", "TLS"),
        (b"AMQP\x00\x01\x00\x00", "without SASL"),
        (b"AMQP\x07\x01\x00\x00", "protocol 7"),
        (b"AMQP\x01\x01\x08\x00", "AMQP 1.8.0"),
        (b"AMQP\x03\x01\x01\x00", "AMQP 1.1.0"),
        (b"HTTP/1.1", "doesn't speak AMQP"),
        (b"AMQP", "doesn't speak AMQP"),
        (b"", "doesn't speak AMQP"),
    ],
)
def test_another_header_than_ours_is_explained(received: bytes, wrong: str) -> None:
    with pytest.raises(CodecError, match=wrong):
        check_header(received, frames.SASL_HEADER)


def test_our_header_is_accepted() -> None:
    check_header(frames.SASL_HEADER, frames.SASL_HEADER)
    check_header(frames.PROTOCOL_HEADER, frames.PROTOCOL_HEADER)
    with pytest.raises(CodecError, match="with SASL"):
        check_header(frames.SASL_HEADER, frames.PROTOCOL_HEADER)
