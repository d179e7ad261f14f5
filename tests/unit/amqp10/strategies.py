"""Values of AMQP 1.0 as anyone may send them."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from agent.amqp10.types import Array, Value, array_of, encode

UNSIGNED = {"ubyte": 8, "ushort": 16, "uint": 32, "ulong": 64}
SIGNED = {"byte": 8, "short": 16, "int": 32, "long": 64, "timestamp": 64}
RAW = {"decimal32": 4, "decimal64": 8, "decimal128": 16, "uuid": 16}

texts = st.text(st.characters(codec="utf-8"), max_size=20) | st.text(
    st.characters(codec="utf-8"), min_size=250, max_size=260
)
symbols = st.text(st.characters(codec="ascii"), max_size=20)
any_bytes = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


def of(name: str, plain: st.SearchStrategy[Any]) -> st.SearchStrategy[Value]:
    return plain.map(lambda each: Value(name, each))


def small_or_any(low: int, high: int) -> st.SearchStrategy[int]:
    """Numbers around where the encodings change, too."""
    edges = {0, 1, -1, 127, 128, -128, -129, 255, 256, low, high}
    return st.sampled_from(sorted(edge for edge in edges if low <= edge <= high)) | st.integers(low, high)


def not_kept(width: int, form: str) -> st.SearchStrategy[bytes]:
    """Bytes that no float gives back."""
    return st.binary(min_size=width, max_size=width).filter(
        lambda raw: struct.pack(form, *struct.unpack(form, raw)) != raw
    )


numbers: dict[str, st.SearchStrategy[Value]] = {
    **{name: of(name, small_or_any(0, 2**bits - 1)) for name, bits in UNSIGNED.items()},
    **{name: of(name, small_or_any(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)) for name, bits in SIGNED.items()},
    **{name: of(name, st.binary(min_size=width, max_size=width)) for name, width in RAW.items()},
    "boolean": of("boolean", st.booleans()),
    "char": of("char", st.characters(codec="utf-8").map(ord)),
    "float": of("float", st.floats(width=32, allow_nan=False)),
    "double": of("double", st.floats(allow_nan=False)),
}
plain_scalars: dict[str, st.SearchStrategy[Value]] = {
    **numbers,
    "binary": of("binary", st.binary(max_size=20) | st.binary(min_size=254, max_size=257)),
    "string": of("string", texts),
    "symbol": of("symbol", symbols),
}
"""Those that any other client reads and writes as well."""
scalars = st.one_of(
    st.just(Value("null", None)),
    *plain_scalars.values(),
    of("string", any_bytes),
    of("symbol", any_bytes),
    of("char", st.integers(0, 2**32 - 1)),
    st.sampled_from([b"\x7f\x80\x00\x01", b"\xff\x81\x00\x00"]).map(lambda raw: Value("float", raw)),
)
descriptors = of("ulong", small_or_any(0, 2**64 - 1)) | of("symbol", symbols)


def arrays_of(name: str) -> st.SearchStrategy[Value]:
    items = st.lists(plain_scalars[name].map(lambda item: item.value), max_size=5)
    return items.map(lambda plain: array_of(name, plain))


plain_arrays = st.one_of(*map(arrays_of, plain_scalars))


def described_array(items: Value, descriptor: Value) -> Value:
    constructor = b"\0" + encode(descriptor) + items.value.constructor
    return Value(
        "array", Array(constructor, tuple(Value("described", (descriptor, item)) for item in items.value.items))
    )


arrays = plain_arrays | st.builds(described_array, plain_arrays, descriptors)


def lists(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return of("list", st.lists(inner, max_size=4).map(tuple))


def maps(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return of("map", st.lists(st.tuples(inner, inner), max_size=3).map(tuple))


def described(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return of("described", st.tuples(descriptors, inner))


def arrays_of_containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    of_lists = st.lists(st.lists(inner, max_size=3).map(tuple), max_size=3).map(lambda items: array_of("list", items))
    of_maps = st.lists(st.lists(st.tuples(inner, inner), max_size=2).map(tuple), max_size=3)
    nested = st.lists(arrays.map(lambda each: each.value), max_size=3).map(lambda items: array_of("array", items))
    return st.one_of(of_lists, of_maps.map(lambda items: array_of("map", items)), nested)


values = st.recursive(
    scalars | arrays,
    lambda inner: lists(inner) | maps(inner) | described(inner) | arrays_of_containers(inner),
    max_leaves=12,
)
leaves = st.just(Value("null", None)) | st.one_of(*plain_scalars.values()) | arrays
plain_values = st.recursive(
    # Proton takes what follows a described value inside of a described value for a part of it.
    leaves | described(leaves) | described(lists(leaves)),
    lambda inner: lists(inner) | maps(inner),
    max_leaves=12,
)
"""Values that any other client reads and writes alike."""
