"""Things that somebody names: by a part of the name, misspelled, or in the wrong vhost."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeVar

LONGEST_WORD = 64
MOST_KNOWN = 500  # comparing one takes about 20 µs

Named = TypeVar("Named")


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


def named_so(links: Sequence[Named], named: str, names: Callable[[Named], tuple[str, str]]) -> list[Named]:
    """The links that somebody names: those with that id, else those with that vhost/name, else those whose id begins
    with it. `names` returns the id and the vhost/name of a link."""
    both = [(link, *names(link)) for link in links]
    return (
        [link for link, id_, _ in both if id_ == named]
        or [link for link, _, full in both if full == named]
        or [link for link, id_, _ in both if named and id_.startswith(named)]
    )
