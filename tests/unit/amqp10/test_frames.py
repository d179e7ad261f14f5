from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire.tables import CodecError
from agent.amqp10 import frames
from agent.amqp10.frames import find_frame, frame

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
