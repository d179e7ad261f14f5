"""Whatever text comes from outside, what is shown of it is seen, stays where it is and keeps its direction; and
numbers and times in words.
"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.text import age, in_words, printable

HARMFUL = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u061c\u200b\u200e\u200f\u2028\u2029\u2060\ufeff"]
HARMFUL += [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xD800, 0xDFFF, 0xFFFE, 0xE0041)]


@pytest.mark.parametrize("letter", HARMFUL, ids=ascii)
def test_what_would_do_harm_is_an_escape(letter: str) -> None:
    assert printable(f"a{letter}b") == f"a{ascii(letter)[1:-1]}b"


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_shown_is_harmless_whatever_the_text(text: str) -> None:
    shown = printable(text)
    assert not set(shown) & set(HARMFUL)
    assert {unicodedata.category(letter) for letter in shown} & {"Cc", "Cs", "Zl", "Zp"} == set()
    assert printable(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    "text", ["", "orders", "ü ß 日本", "שלום", "ক\u200cষ", "👩\u200d💻", "1\u202f000\u00a0s", r"a\b"]
)
def test_names_of_all_scripts_stay_as_they_are(text: str) -> None:
    assert printable(text) == text


def test_what_is_to_be_kept() -> None:
    assert printable("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


@pytest.mark.parametrize(
    ("seconds", "short", "words"),
    [
        (-1, "0s", "0 s"),
        (45.9, "45s", "45 s"),
        (250, "4m10s", "4 min"),
        (720, "12m", "12 min"),
        (3600, "1h", "1 h"),
        (12_000, "3h20m", "3 h"),
        (300_000, "3d11h", "3 d"),
        (3_000_000, "34d", "34 d"),
    ],
)
def test_lengths_of_time(seconds: float, short: str, words: str) -> None:
    assert (age(seconds), in_words(seconds)) == (short, words)
