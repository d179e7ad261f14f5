from __future__ import annotations

import struct
import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.amqp.wire.tables import CodecError
from agent.amqp10 import types
from agent.amqp10.types import MAX_DEPTH, NULL, Array, Value, array_of, decode, encode, skip
from tests.unit.amqp10.strategies import values

S = Value("string", "ab")
ENCODINGS: dict[str, Value] = {
    "40": NULL,
    "56 01": Value("boolean", True),
    "56 00": Value("boolean", False),
    "41": Value("boolean", True),
    "42": Value("boolean", False),
    "50 ff": Value("ubyte", 255),
    "60 0100": Value("ushort", 256),
    "70 00000001": Value("uint", 1),
    "52 ff": Value("uint", 255),
    "43": Value("uint", 0),
    "80 ffffffffffffffff": Value("ulong", 2**64 - 1),
    "53 10": Value("ulong", 16),
    "44": Value("ulong", 0),
    "51 80": Value("byte", -128),
    "61 8000": Value("short", -(2**15)),
    "71 80000000": Value("int", -(2**31)),
    "54 ff": Value("int", -1),
    "81 8000000000000000": Value("long", -(2**63)),
    "55 ff": Value("long", -1),
    "72 3fc00000": Value("float", 1.5),
    "82 bff8000000000000": Value("double", -1.5),
    "74 22500001": Value("decimal32", bytes.fromhex("22500001")),
    "84 2234000000000001": Value("decimal64", bytes.fromhex("2234000000000001")),
    "94 22080000000000000000000000000001": Value("decimal128", bytes.fromhex("22080000000000000000000000000001")),
    "73 0001f600": Value("char", 0x1F600),
    "83 ffffffffffffffff": Value("timestamp", -1),
    "98 00112233445566778899aabbccddeeff": Value("uuid", bytes.fromhex("00112233445566778899aabbccddeeff")),
    "a0 02 6162": Value("binary", b"ab"),
    "b0 00000002 6162": Value("binary", b"ab"),
    "a1 02 6162": S,
    "b1 00000002 6162": S,
    "a3 02 6162": Value("symbol", "ab"),
    "b3 00000002 6162": Value("symbol", "ab"),
    "45": Value("list", ()),
    "c0 03 02 40 41": Value("list", (NULL, Value("boolean", True))),
    "d0 00000006 00000002 40 41": Value("list", (NULL, Value("boolean", True))),
    "c1 06 02 a1026162 40": Value("map", ((S, NULL),)),
    "d1 00000009 00000002 a1026162 40": Value("map", ((S, NULL),)),
    "e0 04 02 50 0102": Value("array", Array(b"\x50", (Value("ubyte", 1), Value("ubyte", 2)))),
    "f0 00000007 00000002 50 0102": Value("array", Array(b"\x50", (Value("ubyte", 1), Value("ubyte", 2)))),
    "00 53 10 45": Value("described", (Value("ulong", 16), Value("list", ()))),
}
"""A value in each encoding of the specification."""
SMALLEST = [
    "40", "41", "42", "50 ff", "60 0100", "52 01", "43", "70 00000100", "53 ff", "44", "80 0000000000000100", "51 80",
    "61 8000", "54 7f", "54 80", "71 00000080", "71 ffffff7f", "54 00", "55 7f", "55 80", "81 0000000000000080",
    "81 ffffffffffffff7f", "72 7f800000", "82 7ff0000000000000", "a0 00", "a1 00", "a3 00", "45", "c1 01 00",
    "c0 02 01 40", "e0 02 00 a3",
]  # fmt: skip
ARRAYS = {
    "no symbols": ("e0 02 00 a3", Value("array", Array(b"\xa3", ()))),
    "wide integers": ("e0 06 01 70 00000001", Value("array", Array(b"\x70", (Value("uint", 1),)))),
    "long strings": ("e0 08 01 b1 00000002 6162", Value("array", Array(b"\xb1", (S,)))),
    "booleans": ("e0 04 02 56 0100", Value("array", Array(b"\x56", (Value("boolean", True), Value("boolean", False))))),
    "booleans of no bytes": ("e0 02 03 41", Value("array", Array(b"\x41", (Value("boolean", True),) * 3))),
    "lists": ("e0 07 02 c0 0100 020140", Value("array", Array(b"\xc0", (Value("list", ()), Value("list", (NULL,)))))),
    "arrays": ("e0 07 01 e0 04 02 50 0102", Value("array", Array(b"\xe0", (array_of("ubyte", [1, 2]),)))),
    "described": (
        "e0 07 02 00 53 05 50 0102",
        Value(
            "array",
            Array(
                b"\x00\x53\x05\x50",
                tuple(Value("described", (Value("ulong", 5), Value("ubyte", each))) for each in (1, 2)),
            ),
        ),
    ),
}  # fmt: skip


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


@pytest.mark.parametrize("text", ENCODINGS)
def test_every_encoding_of_the_specification_is_read(text: str) -> None:
    data = raw(text)
    assert decode(b"xx" + data + b"yy", 2) == (ENCODINGS[text], 2 + len(data))
    assert skip(b"xx" + data + b"yy", 2) == 2 + len(data)


def test_the_table_above_has_all_codes() -> None:
    assert {raw(text)[0] for text in ENCODINGS} == {0, *types._TYPES}  # noqa: SLF001


def test_codes_that_the_specification_lacks_are_refused() -> None:
    known = {raw(text)[0] for text in ENCODINGS}
    for code in set(range(256)) - known:
        data = bytes((code,)) + b"\0" * 20
        for read in (decode, skip):
            with pytest.raises(CodecError, match=f"0x{code:02x}"):
                read(data, 0)
        with pytest.raises(CodecError):
            decode(b"\xe0\x03\x01" + bytes((code, 0)))


@pytest.mark.parametrize("text", SMALLEST)
def test_the_smallest_encoding_is_written(text: str) -> None:
    assert encode(decode(raw(text))[0]).hex() == raw(text).hex()


@pytest.mark.parametrize(("text", "value"), ARRAYS.values(), ids=ARRAYS)
def test_arrays_come_back_with_their_constructor(text: str, value: Value) -> None:
    assert decode(raw(text)) == (value, len(raw(text)))
    assert encode(value) == raw(text)


@pytest.mark.parametrize("size", [0, 254, 255, 256])
def test_sizes_around_the_change_of_encodings(size: int) -> None:
    for name in ("binary", "string", "symbol"):
        plain = b"x" * size if name == "binary" else "x" * size
        data = encode(Value(name, plain))
        assert len(data) == size + (2 if size < 256 else 5)
        assert decode(data) == (Value(name, plain), len(data))
    for items in (size, size // 2):
        value = Value("list", (Value("uint", 300),) * items)
        assert decode(encode(value))[0] == value
    nulls = encode(Value("list", (NULL,) * size))
    assert nulls[0] == (0x45 if size == 0 else 0xC0 if size < 255 else 0xD0)
    pairs = Value("map", ((NULL, NULL),) * (size // 2))
    assert encode(pairs)[0] == (0xC1 if size < 256 else 0xD1)


@given(values)
@example(Value("map", ((S, NULL), (S, S), (NULL, NULL))))
def test_a_value_survives_its_bytes(value: Value) -> None:
    data = encode(value)
    assert decode(b"xx" + data + b"yy", 2) == (value, 2 + len(data))
    assert decode(data, end=len(data)) == (value, len(data))
    assert skip(b"xx" + data + b"yy", 2) == 2 + len(data)
    assert encode(decode(data)[0]) == data


@given(values)
def test_every_cut_is_refused(value: Value) -> None:
    data = encode(value)
    for length in range(len(data)) if len(data) < 60 else (*range(30), len(data) // 2, len(data) - 1):
        with pytest.raises(CodecError):
            decode(data[:length])
        with pytest.raises(CodecError):
            decode(data, end=length)
        with pytest.raises(CodecError):
            skip(data[:length], 0)


@pytest.mark.parametrize("text", [each for each in ENCODINGS if raw(each)[0] >= 0xC0])
def test_every_wrong_size_and_count_is_refused(text: str) -> None:
    data = raw(text)
    width = 4 if data[0] >> 4 in {0xD, 0xF} else 1
    for at in (1, 1 + width):
        right = int.from_bytes(data[at : at + width], "big")
        for wrong in {*range(20), 2 ** (8 * width) - 1} - {right}:
            changed = data[:at] + wrong.to_bytes(width, "big") + data[at + width :] + b"\x40" * 20
            with pytest.raises(CodecError):
                decode(changed)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("56 02", "boolean"),
        ("c1 02 01 40", "without a value"),
        ("e0 03 01 56 02", "boolean"),
        ("e0 01 00", "cut off"),
        ("e0 04 01 00 53 05", "cut off"),
        ("c0 00 00", "cut off"),
        ("d0 00000003 000000", "cut off"),
    ],
)
def test_what_is_no_value_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(CodecError, match=wrong):
        decode(raw(text))


@pytest.mark.parametrize(
    "data",
    [
        *(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff" + bytes((code,)) for code in range(0x40, 0x46)),
        *(b"\xe0\x02\xff" + bytes((code,)) for code in range(0x40, 0x46)),
        *(bytes((code,)) + b"\x00\x00\x00\x06\xff\xff\xff\xff\x40\x40" for code in (0xD0, 0xD1)),
        b"\xf0\x00\x00\x00\x08\xff\xff\xff\xff\x00\x53\x05\x40",
        b"\xf0\x00\x00\x00\x06\xff\xff\xff\xff\x50\x00",
        b"\xb0\xff\xff\xff\xff",
    ],
)
def test_a_few_bytes_make_no_crowd_of_objects(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("code", [0xD0, 0xD1])
def test_a_count_is_refused_before_the_items_are_read(code: int) -> None:
    nulls = b"\x40" * 10
    with pytest.raises(CodecError, match="12 items has room for 10"):
        decode(bytes((code,)) + struct.pack(">II", 14, 12) + nulls)


def test_items_of_no_bytes_are_few() -> None:
    few = Value("array", Array(b"\x40", (NULL,) * types.MAX_ZERO_WIDTH))
    assert decode(encode(few))[0] == few
    with pytest.raises(CodecError, match="33 items"):
        encode(Value("array", Array(b"\x40", (NULL,) * (types.MAX_ZERO_WIDTH + 1))))


def nested(name: str, times: int) -> bytes:
    data = b"\x40"
    for _ in range(times):
        size = len(data)
        data = {
            "list": b"\xd0" + struct.pack(">II", size + 4, 1) + data,
            "map": b"\xd1" + struct.pack(">II", size + 5, 2) + b"\x40" + data,
            "described": b"\x00\x40" + data,
            "descriptor": b"\x00" + data + b"\x40",
        }[name]
    return data


@pytest.mark.parametrize("name", ["list", "map", "described", "descriptor"])
def test_depth_is_bounded(name: str) -> None:
    fits = nested(name, MAX_DEPTH)
    value, end = decode(fits)
    assert end == skip(fits, 0) == len(fits)
    assert decode(encode(value))[0] == value
    for times in (MAX_DEPTH + 1, 5_000):
        with pytest.raises(CodecError, match="deep"):
            decode(nested(name, times))
    deeper = Value("list", (value,))
    with pytest.raises(CodecError, match="deep"):
        encode(deeper)


def test_arrays_in_arrays_are_bounded_too() -> None:
    value = array_of("ubyte", [1])
    for _ in range(MAX_DEPTH - 1):
        value = Value("array", Array(b"\xf0", (value,)))
    data = encode(value)
    assert decode(data) == (value, len(data))
    with pytest.raises(CodecError, match="deep"):
        encode(Value("array", Array(b"\xf0", (value,))))
    with pytest.raises(CodecError, match="deep"):
        decode(b"\xf0" + struct.pack(">II", len(data) + 4, 1) + b"\xf0" + data[1:])
    descriptors = b"\x00\x40" * 5_000
    with pytest.raises(CodecError, match="code 0x00"):
        decode(b"\xf0" + struct.pack(">II", len(descriptors) + 5, 0) + descriptors + b"\x50")
    for times in (MAX_DEPTH + 1, 5_000):
        with pytest.raises(CodecError, match="deep"):
            skip(nested("described", times), 0)


FIVE = Value("ulong", 5)
ONE_NULL = Value("list", (NULL,))


@pytest.mark.parametrize(
    "deepest",
    [
        Array(b"\x00\x53\x05\xd0", (Value("described", (FIVE, ONE_NULL)),)),
        Array(b"\x00\xc0\x02\x01\x40\x50", (Value("described", (ONE_NULL, Value("ubyte", 1))),)),
    ],
)
def test_an_array_with_a_descriptor_is_as_deep_as_what_it_stands_for(deepest: Array) -> None:
    """Three levels: the array, the described value, and the list."""
    value = Value("array", deepest)
    data = encode(value)
    for _ in range(MAX_DEPTH - 3):
        value = Value("list", (value,))
        data = b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data
    assert decode(data) == (value, len(data))
    assert decode(encode(value))[0] == value
    with pytest.raises(CodecError, match="deep"):
        encode(Value("list", (value,)))
    with pytest.raises(CodecError, match="deep"):
        decode(b"\xd0" + struct.pack(">II", len(data) + 4, 1) + data)


@pytest.mark.parametrize(("name", "text"), [("float", "7fc00000"), ("double", "7ff8000000000000")])
def test_a_usual_nan_is_a_float(name: str, text: str) -> None:
    data = (b"\x72" if name == "float" else b"\x82") + raw(text)
    (value, _) = decode(data)
    assert value.value != value.value
    assert encode(value) == data


@pytest.mark.parametrize("text", ["72 7f800001", "72 ffc00001", "82 7ff0000000000001", "82 fff8000000000001"])
def test_every_nan_keeps_its_bytes(text: str) -> None:
    assert encode(decode(raw(text))[0]) == raw(text)


def test_bytes_that_are_no_utf_8_survive() -> None:
    data = b"\xa1\x05a\xff\xed\xb2\x80"
    assert encode(decode(data)[0]) == data


@pytest.mark.parametrize(
    "value",
    [
        Value("uint", -1),
        Value("uint", 2**32),
        Value("ubyte", 256),
        Value("long", 2**63),
        Value("float", 1e300),
        Value("uuid", b"short"),
        Value("float", b"12345"),
        Value("string", "\ud800"),
        Value("uint", "1"),
        Value("decimal32", 1),
        Value("integer", 1),
        Value("array", Array(b"\x50", (Value("uint", 1),))),
        Value("array", Array(b"\x52", (Value("uint", 256),))),
        Value("array", Array(b"\x43", (Value("uint", 1),))),
        Value("array", Array(b"\xa1", (Value("string", "x" * 256),))),
        Value("array", Array(b"\xc0", (Value("list", (NULL,) * 255),))),
        Value("array", Array(b"\x50\x50", ())),
        Value("array", Array(b"\x00\x53\x05\x00\x53\x06\x50", ())),
        Value("uint", None),
        Value("array", Array(b"", ())),
        Value("array", Array(b"\x01", ())),
        Value("array", Array(b"\x00\x53\x05\x50", (Value("ubyte", 1),))),
        Value("array", Array(b"\x00\x53\x05\x50", (Value("described", (Value("ulong", 6), Value("ubyte", 1))),))),
    ],
)
def test_what_has_no_bytes_is_an_error(value: Value) -> None:
    with pytest.raises(CodecError):
        encode(value)


def test_an_array_has_the_smallest_constructor_that_suits_all() -> None:
    assert array_of("symbol", ["a", "b"]).value.constructor == b"\xa3"
    assert array_of("symbol", ["a", "b" * 256]).value.constructor == b"\xb3"
    assert array_of("uint", [0, 255]).value.constructor == b"\x52"
    assert array_of("uint", [0, 256]).value.constructor == b"\x70"
    assert array_of("boolean", [True, False]).value.constructor == b"\x56"
    assert array_of("null", [None]).value.constructor == b"\x40"
    for name, plain in (("uint", -1), ("nonsense", 1), ("described", ())):
        with pytest.raises(CodecError):
            array_of(name, [plain])


def changed(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    found = bytearray(data)
    for at, byte in changes:
        if found:
            found[at % len(found)] = byte
    return bytes(found)


@given(
    st.binary(max_size=60)
    | st.builds(changed, values.map(encode), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4))
)
def test_garbage_is_a_value_or_an_error(data: bytes) -> None:
    began = time.process_time()
    try:
        skipped = skip(data, 0)
    except CodecError:
        skipped = None
    try:
        value, end = decode(data)
    except CodecError:
        pass
    else:
        assert skipped == end
        again = encode(value)
        assert encode(decode(again)[0]) == again
    assert time.process_time() - began < 1
