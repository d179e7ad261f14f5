"""Suggestions for misspelled words."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Container, Iterable, Mapping

LONGEST_WORD = 64
MOST_KNOWN = 500  # comparing one takes about 20 µs


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion to append to a message, or an empty text; empty for words that are too long to be a typo."""
    if len(word) > LONGEST_WORD:
        return ""
    candidates = [each for each in itertools.islice(known, MOST_KNOWN) if len(each) <= LONGEST_WORD]
    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def in_another_vhost(what: str, name: str, defined: Mapping[str, Container[str]]) -> str:
    """Text to append to a message that a vhost doesn't define the name, if one of `defined`, by quoted vhost, does;
    else empty."""
    other = next((vhost for vhost, names in defined.items() if name in names), None)
    return "" if other is None else f"; there is one in vhost {other}: each {what} belongs to one vhost"
