"""Frames whole or in pieces, and performatives by their tables, there and back."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire.tables import CodecError
from agent.amqp10 import performatives
from agent.amqp10 import performatives as p
from agent.amqp10.performatives import BY_DESCRIPTOR, Performative, Performed, decode, find_frame, frame
from agent.amqp10.types import NULL, Value, array_of, encode, encode_list
from tests.unit.amqp10.strategies import numbers, scalars, texts, values

ALL = sorted({each.code: each for each in BY_DESCRIPTOR.values()}.values(), key=lambda each: each.code)
OUTCOMES = [p.RECEIVED, p.ACCEPTED, p.REJECTED, p.RELEASED, p.MODIFIED]
NATURAL: dict[str, st.SearchStrategy[Any]] = {
    "string": texts,
    "symbol": texts,
    "binary": st.binary(max_size=20),
    "any": values.filter(lambda value: value != NULL),
    "map": st.lists(st.tuples(scalars, scalars), max_size=3).map(tuple),
    "fields": st.dictionaries(texts, values, max_size=3),
    "symbols": st.lists(texts, max_size=3).map(tuple),
    **{name: each.map(lambda value: value.value) for name, each in numbers.items()},
}


def fields(performative: Performative) -> st.SearchStrategy[dict[str, Any]]:
    """Natural values of all mandatory and some other fields, nested ones as dicts with a performative."""
    drawn = {rule.name: natural(rule.type) for rule in performative.fields}
    must = {name: drawn.pop(name) for name in performative.mandatory}
    return st.fixed_dictionaries(must, optional=drawn)


def natural(kind: str) -> st.SearchStrategy[Any]:
    nested = {"source": [p.SOURCE], "target": [p.TARGET], "error": [p.ERROR], "state": OUTCOMES}
    if kind not in nested:
        return NATURAL[kind]
    return st.sampled_from(nested[kind]).flatmap(lambda each: st.tuples(st.just(each), fields(each)))


def encoded(performative: Performative, given: dict[str, Any]) -> bytes:
    plain = {name: encoded(*value) if is_nested(value) else value for name, value in given.items()}
    return performative.encode(**plain)


def is_nested(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], Performative)


def matches(found: Any, wanted: Any) -> bool:
    if not is_nested(wanted):
        return bool(found == wanted)
    performative, given = wanted
    return found.performative is performative and all_match(found, given)


def all_match(found: Performed, given: dict[str, Any]) -> bool:
    wanted = {**found.performative.absent, **given}
    return found.values.keys() == wanted.keys() and all(matches(found[name], wanted[name]) for name in wanted)


@given(st.data(), st.sampled_from(ALL), st.binary(max_size=9))
def test_fields_survive_their_bytes(data: st.DataObject, performative: Performative, payload: bytes) -> None:
    given = data.draw(fields(performative))
    body = encoded(performative, given)
    found, end = decode(b"xx" + body + payload, 2)
    assert end == 2 + len(body)
    assert found.performative is performative
    assert all_match(found, given)
    assert decode(body + payload, end=len(body))[1] == len(body)


@pytest.mark.parametrize("performative", ALL, ids=lambda each: each.name)
def test_descriptors_may_be_long_numbers_and_symbols(performative: Performative) -> None:
    given = {name: MINIMAL[name] for name in performative.mandatory}
    short = performative.encode(**given)
    for descriptor in (
        b"\x00\x80" + performative.code.to_bytes(8, "big"),
        b"\x00" + encode(Value("symbol", f"amqp:{performative.name}:list")),
        b"\x00\xb3" + (len(performative.symbol)).to_bytes(4, "big") + performative.symbol.encode(),
    ):
        found, _ = decode(descriptor + short[3:])
        assert found.performative is performative
        assert found.values == decode(short)[0].values


MINIMAL: dict[str, Any] = {
    "container_id": "x", "next_outgoing_id": 0, "incoming_window": 0, "outgoing_window": 0, "name": "x", "handle": 0,
    "role": True, "first": 0, "section_number": 0, "section_offset": 0, "condition": "x", "mechanism": "x",
    "challenge": b"", "response": b"", "code": 0, "sasl_server_mechanisms": ("x",),
}  # fmt: skip


def test_codes_are_those_of_the_specification() -> None:
    assert {each.code: each.name for each in ALL} == {
        0x10: "open", 0x11: "begin", 0x12: "attach", 0x13: "flow", 0x14: "transfer", 0x15: "disposition",
        0x16: "detach", 0x17: "end", 0x18: "close", 0x1D: "error", 0x23: "received", 0x24: "accepted",
        0x25: "rejected", 0x26: "released", 0x27: "modified", 0x28: "source", 0x29: "target",
        0x40: "sasl-mechanisms", 0x41: "sasl-init", 0x42: "sasl-challenge", 0x43: "sasl-response",
        0x44: "sasl-outcome",
    }  # fmt: skip


def test_defaults_are_those_of_the_specification() -> None:
    found, _ = decode(p.OPEN.encode(container_id="x"))
    assert (found["max_frame_size"], found["channel_max"], found["idle_time_out"]) == (2**32 - 1, 65535, None)
    assert (found["offered_capabilities"], found["properties"]) == ((), None)
    assert (
        decode(p.BEGIN.encode(next_outgoing_id=1, incoming_window=2, outgoing_window=3))[0]["handle_max"] == 2**32 - 1
    )
    attach, _ = decode(p.ATTACH.encode(name="x", handle=0, role=False, source=p.SOURCE.encode()))
    assert (attach["snd_settle_mode"], attach["rcv_settle_mode"], attach["incomplete_unsettled"]) == (2, 0, False)
    source = attach["source"]
    assert (source["durable"], source["expiry_policy"], source["timeout"], source["dynamic"]) == (
        0,
        "session-end",
        0,
        False,
    )
    flow, _ = decode(p.FLOW.encode(incoming_window=1, next_outgoing_id=2, outgoing_window=3))
    assert (flow["drain"], flow["echo"], flow["handle"]) == (False, False, None)
    transfer, _ = decode(p.TRANSFER.encode(handle=0))
    assert (transfer["more"], transfer["aborted"], transfer["settled"]) == (False, False, None)


def test_trailing_nulls_are_left_out() -> None:
    assert p.TRANSFER.encode(handle=0, more=False, state=None) == bytes.fromhex("005314 c0 07 06 43 40 40 40 40 42")
    assert p.CLOSE.encode() == bytes.fromhex("005318 45")
    assert p.DISPOSITION.encode(role=True, first=1, settled=True, state=p.ACCEPTED.encode()) == bytes.fromhex(
        "005315 c0 0a 05 41 5201 40 41 00532445"
    )


def test_explicit_nulls_are_defaults_too() -> None:
    body = b"\x00\x53\x10" + encode_list([encode(Value("string", "x")), *[b"\x40"] * 9])
    assert decode(body)[0].values == decode(p.OPEN.encode(container_id="x"))[0].values


def test_one_symbol_is_no_array_and_several_are_one() -> None:
    assert p.SASL_MECHANISMS.encode(sasl_server_mechanisms=("PLAIN",)).endswith(b"\xa3\x05PLAIN")
    body = p.SASL_MECHANISMS.encode(sasl_server_mechanisms=("PLAIN", "EXTERNAL"))
    assert decode(body)[0]["sasl_server_mechanisms"] == ("PLAIN", "EXTERNAL")
    same = p.SASL_MECHANISMS.encode(sasl_server_mechanisms=array_of("symbol", ["PLAIN", "EXTERNAL"]))
    assert same == body


def test_described_values_that_nobody_knows_are_kept() -> None:
    coordinator = Value("described", (Value("ulong", 0x30), Value("list", ())))
    declared = Value("described", (Value("symbol", "amqp:declared:list"), Value("list", (Value("binary", b"tx"),))))
    attach, _ = decode(p.ATTACH.encode(name="x", handle=0, role=False, target=coordinator))
    assert attach["target"] == coordinator
    disposition, _ = decode(p.DISPOSITION.encode(role=True, first=0, state=declared))
    assert disposition["state"] == declared


def test_what_is_no_state_stays_a_value_in_its_place() -> None:
    """So nothing that arrives is nested without end."""
    body = p.DISPOSITION.encode(role=True, first=0, state=p.CLOSE.encode())
    assert decode(body)[0]["state"] == Value("described", (Value("ulong", 0x18), Value("list", ())))


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("", "descriptor"),
        ("00", "cut off"),
        ("0053", "cut off"),
        ("005310", "cut off"),
        ("45", "descriptor"),
        ("005330 45", "performative 48"),
        ("00 a305 6162636465 45", "performative by a symbol"),
        ("00 40 45", "performative by a null"),
        ("00 d0000000050000000140 45", "performative"),
        ("005370 45", "performative 112"),
        ("005310 45", "open without container_id"),
        ("005310 c0020140", "open without container_id"),
        ("005310 c10100", "0xc1 in place of a list"),
        ("005310 a000", "0xa0 in place of a list"),
        ("005310 c0020143", "open.container_id: .*uint in place of string"),
        ("005318 c0020143", "close.error: .*uint in place of error"),
        ("005318 c0030240 40", "2 fields: only 1"),
        ("005318 d0000000 05ffffffff40", "4294967295 fields"),
        ("005318 c00301 4040", "longer than its 1 fields"),
        ("005318 c00101", "cut off"),
        ("005318 c0050100531d45", "close.error: .*error without condition"),
        ("005340 c0020140", "without sasl_server_mechanisms"),
        ("005340 c007 01 e004 02 50 0102", "array in place of symbols"),
    ],
)
def test_what_is_no_performative_is_refused_by_name(body: str, wrong: str) -> None:
    with pytest.raises(CodecError, match=wrong):
        decode(bytes.fromhex(body))


WRONG = {
    "container_id": [Value("symbol", "x"), Value("map", ()), array_of("symbol", ["x"]), Value("binary", b"x")],
    "max_frame_size": [Value("ulong", 1), Value("boolean", True), Value("map", ()), Value("symbol", "x")],
    "offered_capabilities": [Value("string", "x"), array_of("string", ["x"]), Value("list", ()), Value("map", ())],
    "properties": [Value("uint", 1), Value("list", ()), Value("symbol", "x"), array_of("symbol", ["x"])],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_field_has_its_type(name: str) -> None:
    place = [rule.name for rule in p.OPEN.fields].index(name)
    for value in WRONG[name]:
        items = [encode(Value("string", "x")), *[encode(NULL)] * 9]
        items[place] = encode(value)
        with pytest.raises(CodecError, match=f"open.{name}: .*{value.type} in place of"):
            decode(b"\x00\x53\x10" + encode_list(items))


def test_keys_of_fields_are_symbols() -> None:
    with pytest.raises(CodecError, match="uint in place of a symbol"):
        decode(p.OPEN.encode(container_id="x", properties=Value("map", ((Value("uint", 1), NULL),))))


def test_a_programming_error_is_no_error_of_the_peer() -> None:
    with pytest.raises(TypeError, match="handle"):
        p.TRANSFER.encode(delivery_id=1)
    with pytest.raises(TypeError, match="container"):
        p.OPEN.encode(container_id="x", container="y")


def test_numbers_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(CodecError):
        p.TRANSFER.encode(handle=2**32)


@given(
    st.sampled_from([0x10, 0x12, 0x14, 0x15, 0x18, 0x28, 0x40]),
    st.data(),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 200),
)
def test_changed_bytes_are_a_performative_or_an_error(
    code: int, data: st.DataObject, changes: list[tuple[int, int]], length: int
) -> None:
    performative = BY_DESCRIPTOR[code]
    body = bytearray(encoded(performative, data.draw(fields(performative))))
    for at, byte in changes:
        body[at % len(body)] = byte
    for garbage in (bytes(body), bytes(body[:length])):
        began = time.process_time()
        try:
            _, end = decode(garbage)
        except CodecError:
            pass
        else:
            assert end <= len(garbage)
        assert time.process_time() - began < 1


@given(st.binary(max_size=40).map(lambda raw: b"\x00\x53" + raw))
def test_garbage_is_a_performative_or_an_error(body: bytes) -> None:
    try:
        found, end = decode(body)
    except CodecError:
        return
    assert isinstance(found, Performed)
    assert end <= len(body)


def test_sasl_carries_a_password_that_is_not_shown_by_an_error() -> None:
    body = p.SASL_INIT.encode(mechanism="PLAIN", initial_response=b"\0user\0secret")
    for length in range(len(body)):
        with pytest.raises(CodecError) as caught:
            decode(body[:length])
        assert "secret" not in str(caught.value)


LARGEST = 600


@given(
    st.integers(0, 2**16 - 1),
    st.binary(max_size=40),
    st.sampled_from([performatives.AMQP, performatives.SASL]),
    st.binary(max_size=9),
)
def test_a_frame_is_found_where_it_is(channel: int, body: bytes, kind: int, more: bytes) -> None:
    data = b"before" + frame(channel, body, kind) + more
    found = find_frame(data, 6, LARGEST)
    assert found == (kind, channel, 14, 14 + len(body))
    for length in range(14 + len(body)):
        assert find_frame(data[:length], 6, LARGEST) is None


def test_a_frame_may_be_as_large_as_was_agreed() -> None:
    data = frame(1, b"x" * (LARGEST - performatives.OVERHEAD))
    assert find_frame(data, 0, LARGEST) == (performatives.AMQP, 1, 8, LARGEST)


def test_a_body_begins_behind_an_extended_header() -> None:
    data = b"\0\0\0\x0e\x03\0\0\x01" + b"more" + b"ab"
    assert find_frame(data, 0, LARGEST) == (performatives.AMQP, 1, 12, 14)


def test_the_heartbeat_is_a_frame_without_a_body() -> None:
    assert find_frame(performatives.EMPTY, 0, performatives.SMALLEST) == (performatives.AMQP, 0, 8, 8)


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
