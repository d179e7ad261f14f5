from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from agent.definitions.sources.legacy.yaml_writer import Block, BlockEntry, Rows, Scalar, Value, render

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_SCALARS: st.SearchStrategy[Scalar] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _TEXT
)
_TRICKY = [
    *(
        "",
        " ",
        " leading",
        "trailing ",
        "a  b",
        "a: b",
        "a #b",
        "#a",
        "- a",
        "-",
        "?",
        "!a",
        "&a",
        "*a",
        "%a",
        "@a",
        "`a",
    ),
    *(
        "yes",
        "No",
        "ON",
        "off",
        "true",
        "Null",
        "~",
        "y",
        "1",
        "1e3",
        "0x1F",
        "017",
        "1_000",
        ".inf",
        ".5",
        "2012-03-01",
    ),
    *(
        "12:30:45",
        "<<",
        "=",
        "---",
        "...",
        "{}",
        "[a]",
        "a,b",
        "it's",
        '"q"',
        "\\x",
        "line\nbreak",
        "tab\t",
        "\r",
        "\x00",
    ),
    *(
        "\x85",
        "\u2028",
        "\ufeff",
        "\xa0",
        "é",
        "名前",
        "\U0001f600",
        "${env:X}",
        "$${env:X}",
        "a/b.c-d_e",
        "/",
        "|",
        ">",
    ),
]


def _nested(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    entries = st.lists(st.builds(BlockEntry, _TEXT, inner, _TEXT), max_size=4, unique_by=lambda entry: entry.key).map(
        tuple
    )
    return st.one_of(
        st.builds(Block, entries, st.lists(_TEXT, max_size=2).map(tuple)),
        st.builds(Rows, st.lists(inner, max_size=4).map(tuple)),
    )


_VALUES: st.SearchStrategy[Value] = st.recursive(_SCALARS, _nested, max_leaves=15)


def meant(value: Value) -> Any:
    match value:
        case Block(entries):
            return {entry.key: meant(entry.value) for entry in entries}
        case Rows(items):
            return [meant(item) for item in items]
        case _:
            return value


@given(_VALUES, _TEXT)
@example(Rows((Rows((Rows(()), Block())), Block((BlockEntry("a", Rows((1,))),), ("note",)))), "\n- x: y")
def test_yaml_says_what_was_meant_whatever_the_comments(value: Value, note: str) -> None:
    document = Block((BlockEntry("key", value, note), BlockEntry("after", 1)), notes=(note,))
    assert yaml.safe_load(render(document)) == {"key": meant(value), "after": 1}


@pytest.mark.parametrize("text", _TRICKY)
def test_a_text_stays_a_text_as_key_and_as_value(text: str) -> None:
    assert yaml.safe_load(render(Block((BlockEntry(text, text),)))) == {text: text}


@given(st.one_of(st.sampled_from(_TRICKY), _TEXT))
def test_what_is_not_quoted_is_a_word_in_yaml_1_2_too(text: str) -> None:
    written = render(Block((BlockEntry("key", text),))).removeprefix("key: ").rstrip("\n")
    if not written.startswith('"'):
        assert written == text
        assert written[0].isalpha() or written[0] in "_/"
        assert not set(written) & set(":#,[]{}\"'\\&*!|>%@`~")
        assert written.lower() not in {"null", "true", "false"}


def test_it_reads_well() -> None:
    member = Block((BlockEntry("upstream", "a"), BlockEntry("max-hops", 2, "why")), notes=("left out",))
    document = Block(
        (
            BlockEntry("set", Rows((member, "b", Rows((1, 2))))),
            BlockEntry("none", Block(), "beside"),
            BlockEntry("float", 1e22),
        ),
        notes=("What differs:", "- " + "word " * 30),
    )
    assert render(document) == (
        "# What differs:\n"
        "# - word word word word word word word word word word word word word word word word word word word word word\n"
        "#   word word word word word word word word word\n"
        "set:\n"
        "  # left out\n"
        "  - upstream: a\n"
        "    max-hops: 2  # why\n"
        "  - b\n"
        "  -\n"
        "    - 1\n"
        "    - 2\n"
        "none: {}  # beside\n"
        "float: 1.0e+22\n"
    )
