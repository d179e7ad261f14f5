"""The positioned tree: where things stand, what scalars mean, what is refused and where."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.definitions.document import yaml
from agent.definitions.document.findings import Path
from agent.definitions.document.yaml import LongNumber, resolve_scalar
from agent.errors import ConfigurationError


def plain(text: str) -> Any:
    tree = yaml.compose(text.encode(), "f")
    assert not tree.problems
    return tree.plain()


def complaints(data: str | bytes) -> list[str]:
    try:
        tree = yaml.compose(data.encode() if isinstance(data, str) else data, "f")
    except ConfigurationError as error:
        return [str(problem) for problem in error.problems]
    return [str(problem) for problem in tree.problems]


def test_reads_block_and_flow_style() -> None:
    assert plain("a: [1, {b: c}]\nd:\n  - e\n  - f: g\n") == {"a": [1, {"b": "c"}], "d": ["e", {"f": "g"}]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("-.5e1", -5.0),
        (".inf", math.inf),
        ("yes", "yes"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("=", "="),
        ("-", "-"),
        ("1" * 100, LongNumber("1" * 100)),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_1_2(text: str, value: object) -> None:
    assert resolve_scalar(text) == value
    assert type(resolve_scalar(text)) is type(value)


def test_quoted_scalars_are_text() -> None:
    assert plain("a: 'true'\nb: \"12\"\nc: ''\nd: |\n  1\n") == {"a": "true", "b": "12", "c": "", "d": "1\n"}


@pytest.mark.parametrize(
    ("path", "key", "position"),
    [
        ((), False, (1, 1)),
        (("a",), True, (1, 1)),
        (("a",), False, (1, 4)),
        (("b",), False, (3, 3)),
        (("b", "c"), True, (3, 3)),
        (("b", "c", 1), False, (3, 10)),
        (("b", "c", 1), True, (3, 10)),
        (("b", "missing", "deeper"), True, (2, 1)),
        (("a", 0), False, (1, 4)),
        (("b", "c", 7), True, (3, 3)),
        (("missing",), False, (1, 1)),
    ],
)
def test_positions_are_those_of_the_longest_part_of_a_path(path: Path, key: bool, position: tuple[int, int]) -> None:
    tree = yaml.compose(b"a: 1\nb:\n  c: [x, y]\n", "f")
    assert tree.position(path, key=key) == position


def test_columns_count_characters() -> None:
    tree = yaml.compose("{'ä€😀': 1, b: 2}".encode(), "f")
    assert tree.position(("b",), key=True) == (1, 12)


def test_aliases_share_and_merge_keys_fill_in() -> None:
    text = "x: &a {p: 1, q: 2}\ny: *a\nz: {<<: *a, q: 3}\nw: {<<: [{r: 4}, *a]}\n"
    found = plain(text)
    assert found["y"] == found["x"]
    assert found["z"] == {"p": 1, "q": 3}
    assert found["w"] == {"r": 4, "p": 1, "q": 2}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1: the key 'a' is already written in line 1"),
        ("1: a\n", "f:1:1: a key must be text; put it in quotes"),
        ("true: a\n", "f:1:1: a key must be text; put it in quotes"),
        ("~: a\n", "f:1:1: a key must be text; put it in quotes"),
        ("[a]: b\n", "f:1:1: a key must be text, not a list or mapping; quote text that begins with [ or {"),
        ("a: !foo b\n", "f:1:4: tags ('!') aren't supported; quote the text"),
        ("a: !!python/object:os.system b\n", "f:1:4: tags ('!') aren't supported; quote the text"),
        ("a: b\n---\nc: d\n", "f:2:1: a second document begins here; a file holds one"),
        ("a:\n\tb: c\n", "f:2:1: a tab; YAML indents with spaces"),
        ("a: b: c\n", "f:1:5: a ':' where no key is possible; quote text that contains ': '"),
        ("a: [b\n", "f:2:1: a ',' or ']' is missing"),
        (
            "a: {b: ${env:C}}\n",
            "f:1:9: a ',' or '}' is missing: quote ${…} inside braces and brackets, as in {uri: \"${env:NAME}\"}",
        ),
        ("a: 'b\n", "f:1:4: the file ends inside a quoted text"),
        ('a:\n  b: "c\nd: 1\n', "f:2:6: the file ends inside a quoted text"),
        ("a: 'b\n---\n", "f:1:4: a document marker inside a quoted text"),
        ("a:\n  b: 1\n  max-hops:2\n", "f:3:3: a ':' is missing after the key"),
        ("a:\n  " + "k" * 1100 + ": 1\n", "f:2:3: a key can't be longer than 1024 characters"),
        ("a: {b: 1, '" + "k" * 1100 + "': 1}\n", "f:1:11: a key can't be longer than 1024 characters"),
        ("a: *b\n", "f:1:4: the alias names an anchor that isn't defined"),
        ("a: &b [*b]\n", "f:1:8: the alias is inside the value that it repeats"),
        ("a: {<<: 1}\n", "f:1:9: '<<' takes an alias of a mapping, or a list of them"),
        ('a: "\\q"\n', "f:1:5: unknown escape after '\\'; use single quotes or double the '\\'"),
        ("a: \x01\n", "f:1:4: the control character U+0001 isn't allowed here"),
        ("a: b\x00\n", "f:1:5: the control character U+0000 isn't allowed here"),
        ("a: \u2028é\n".encode("utf-16"), "f:1:1: the file is not UTF-8 (UTF-16, or not text); save it as UTF-8"),
        ("a: b\n".encode("utf-16-le"), "f:1:1: the file is not UTF-8 (UTF-16, or not text); save it as UTF-8"),
        ("ä: b\nc: é\n".encode("latin-1"), "f:1:1: byte 0xe4 is not UTF-8; save the file as UTF-8"),
        ("a: ä".encode() + b"\nb: \xe9\n", "f:2:4: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        ("[" * 100, "f:1:65: nested deeper than 64 levels"),
    ],
)
def test_refuses_with_one_line_and_its_place(data: str | bytes, complaint: str) -> None:
    assert complaints(data) == [complaint]


def test_a_byte_order_mark_of_utf_8_is_no_fault() -> None:
    assert yaml.compose(b"\xef\xbb\xbfa: 1\n", "f").plain() == {"a": 1}


def test_a_key_that_may_be_a_secret_is_not_quoted() -> None:
    (complaint,) = complaints("amqp://u:hunter2@h: 1\namqp://u:hunter2@h: 2\n")
    assert "hunter2" not in complaint


def test_alias_bombs_end_where_they_pass_the_limit() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(12)]
    (complaint,) = complaints("\n".join(lines))
    assert "more than 50000 keys and values, aliases expanded" in complaint


def test_aliases_count_towards_the_depth() -> None:
    lines = ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {{x: *a{i - 1}}}" for i in range(1, 80))]
    (complaint,) = complaints("\n".join(lines))
    assert "nested deeper than 64 levels by its aliases" in complaint


def test_problems_of_reading_are_not_counted_for_ever() -> None:
    assert len(complaints("a: 1\n" * 10_000)) == yaml.MAX_PROBLEMS


TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(TREES)
def test_reads_every_json_document_as_json_does(tree: object) -> None:
    assert yaml.compose(json.dumps(tree).encode(), "f").plain() == tree
