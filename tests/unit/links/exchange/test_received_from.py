"""What the header of hops may cost, whatever is in it."""

from __future__ import annotations

import time

import pytest

from agent.amqp.data.rewriting import Delivery
from agent.amqp.wire.tables import encode_table
from agent.core import fields
from agent.core.rules.hops import RECEIVED_FROM, Site, Verdict, received_entry
from agent.links.exchange.received_from import ReceivedFromHeader

MARK = b"\x0fx-received-from"
DELIVERY = Delivery(b"x", b"k", redelivered=False)
OFTEN = 20
SECONDS_EACH = 0.05  # of CPU; decoding took 0.12 to 0.2


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def stamp(max_hops: int) -> ReceivedFromHeader:
    return ReceivedFromHeader(
        "amqp://there", "x", upstream=Site("there", "w"), downstream=Site("here", "v"), max_hops=max_hops,
        trust_user_id=False,
    )  # fmt: skip


@pytest.mark.parametrize("max_hops", [1, 2, 1_000])
@pytest.mark.parametrize(
    "entries",
    [
        MARK + b"F" + sized(b"\0V" * 50_000),
        MARK + b"A" + sized(b"V" * 100_000),
        MARK + b"A" + sized(b"F" + sized(b"\0V" * 50_000)),
        MARK + b"A" + sized(b"F\0\0\0\0" * 20_000),
        b"\0V" * 50_000 + MARK + b"A" + sized(b""),
        (b"\x40" + b"n" * 64 + b"V") * 1_500 + MARK + b"S" + sized(b"x"),
        b"\x11x-invalid-headersF" + sized((MARK + b"V") * 5_000) + MARK + b"V",
    ],
    ids=["table", "array", "hop", "hops", "last", "long names", "invalid"],
)
def test_no_shape_of_the_header_takes_long(entries: bytes, max_hops: int) -> None:
    """Of 100 KB each; a single one of these took more than a tenth of a second."""
    headers, judge = sized(entries), stamp(max_hops)
    begun = time.process_time()
    for _ in range(OFTEN):
        judge.rewrite(headers, DELIVERY)
    assert time.process_time() - begun < 1 + OFTEN * SECONDS_EACH


def test_verdicts_on_long_ways_are_not_kept() -> None:
    judge = stamp(2)
    for number in range(1_000):
        way = fields.array(fields.text(f"{number:06}" * 20_000))
        assert isinstance(judge.rewrite(encode_table(((RECEIVED_FROM, way),)), DELIVERY), bytes)
    assert judge.kept == 0


def test_verdicts_on_short_ways_are_kept_but_not_without_end() -> None:
    judge = stamp(2)
    for number in range(2_000):
        hop = received_entry("u", "x", redelivered=False, upstream=Site(f"cluster {number}", "v"))
        headers = encode_table(((RECEIVED_FROM, fields.array(hop)),))
        assert isinstance(judge.rewrite(headers, DELIVERY), bytes)
        assert 0 < judge.kept <= 64 * 1024


def test_of_more_hops_than_allowed_no_more_are_read() -> None:
    hop = received_entry("u", "x", redelivered=False, upstream=Site("far", "v"))
    headers = encode_table(((RECEIVED_FROM, fields.array(hop, hop)),))
    broken = headers[:4] + headers[4:].replace(b"cluster-name", b"\xff" * 12)
    assert stamp(2).rewrite(broken, DELIVERY) == Verdict.MAX_HOPS
