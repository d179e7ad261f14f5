"""A list of objects that arrives in any pieces, and objects of it that are too much."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.fields import UNREAD
from agent.management.elements import MAX_OBJECT, MAX_OBJECTS, STEP, ListReader, NotAListError, TooMuchError

plain = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
objects = st.lists(st.dictionaries(st.text(max_size=4), values, max_size=3), max_size=6)


def read(data: bytes, size: int = STEP) -> list[dict[str, Any]]:
    reader = ListReader()
    found = [each for start in range(0, len(data), size) for each in reader.feed(data[start : start + size])]
    return [*found, *reader.feed(b"", final=True)]


@given(objects, st.integers(1, 40), st.booleans())
def test_any_list_in_any_pieces(objects: list[dict[str, Any]], size: int, ascii_only: bool) -> None:
    text = json.dumps(objects, ensure_ascii=ascii_only, indent=size % 3 or None)
    assert read(text.encode("utf-8", "surrogatepass"), size) == json.loads(text)


@pytest.mark.parametrize("text", ["", "{", "[", "[1]", "[{}", "[{},]", "[{}{}]", "[{}]x", '[{"a":}]', "[,{}]", "null"])
def test_what_is_no_list_of_objects(text: str) -> None:
    with pytest.raises(NotAListError):
        read(text.encode())


LARGE: Final = (
    ('{"a": "' + ']}\\"' * (MAX_OBJECT // 4) + '"}', "is larger than 512 KiB"),
    ('{"a": [' + "[1]," * (MAX_OBJECT // 4) + "0]}", "is larger than 512 KiB"),
)
DEEP: Final = (
    ("[" * 1200 + "]" * 1200, "is nested deeper than 64 levels"),
    ("[" * 100 + "]" * 100, "is nested deeper than 64 levels"),
)


@pytest.mark.parametrize(
    ("value", "reason", "size"),
    [
        *((*case, size) for case in (*LARGE, *DEEP) for size in (STEP, 10**7)),
        *(pytest.param(*case, 1000, marks=pytest.mark.thorough) for case in LARGE),
        *((*case, 7) for case in DEEP),  # a large one in so small pieces takes minutes
    ],
)
def test_an_object_that_is_too_much_is_named_and_spoils_no_other(value: str, reason: str, size: int) -> None:
    text = (
        '[{"name": "a"}, {"name": "bad", "arguments": ' + value + ', "type": "topic", "durable": true}, {"name": "z"}]'
    )
    first, bad, last = read(text.encode(), size)
    assert (first, last) == ({"name": "a"}, {"name": "z"})
    assert bad == {"name": "bad", "type": "topic", "durable": True, UNREAD: reason}


def test_thousands_of_digits_are_a_number_that_is_too_large() -> None:
    [found] = read(b'[{"n": 1' + b"0" * 5000 + b"}]")
    assert found == {"n": float("inf")}


def test_a_name_that_is_no_utf_8_stays_what_it_is() -> None:
    [found] = read(b'[{"name": "\xff"}]', 1)
    assert found["name"].encode("utf-8", "surrogateescape") == b"\xff"


def test_objects_are_counted() -> None:
    with pytest.raises(TooMuchError, match="objects"):
        read(b"[" + b"{}," * MAX_OBJECTS + b"{}]")
    with pytest.raises(TooMuchError, match="values"):
        read(b"[" + (b'{"a":[' + b"0," * 100_000 + b"0]},") * 11 + b"{}]")
