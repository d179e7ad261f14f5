"""Text for people: made safe to show on a terminal, in a log or on a page; numbers, lengths of time and times in words;
and what somebody meant who misspelled a name.

Why: docs/decisions/0022-text-from-outside.md
"""

from __future__ import annotations

import difflib
import itertools
import unicodedata
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

_JOINERS: Final = frozenset("\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}")  # some scripts need these


def printable(text: str, *, keep: str = "") -> str:
    r"""Shows characters that are invisible, move a cursor or change the direction of text as escapes: `\x1b`, `\u202e`.

    These are all control, format and separator characters except blanks, and unassigned code points. A backslash stays,
    so an escape looks like the same characters written out: this is for reading only. `keep` names characters to leave.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter in keep or _is_safe(letter) else _escaped(letter) for letter in text)


def _is_safe(letter: str) -> bool:
    return letter.isprintable() or letter in _JOINERS or unicodedata.category(letter) == "Zs"


def _escaped(letter: str) -> str:
    return repr(letter)[1:-1]


_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_WORDS: Final = {"d": "d", "h": "h", "m": "min", "s": "s"}
_TWO_BELOW: Final = {"d": 10, "h": 10, "m": 10}  # 3h20m, but 12h


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


MOST_NAMED: Final = 5


def listed(words: Sequence[str], most: int = MOST_NAMED, what: str = "", *, separator: str = ", ") -> str:
    """The first words, and the number of the others."""
    shown, more = separator.join(words[:most]), len(words) - most
    end = "; " if ";" in separator else " "
    return f"{shown}{end}and {counted(more, f'more {what}') if what else f'{more:,} more'}" if more > 0 else shown


def waiting_text(messages: int, where: str = "", *, is_exact: bool) -> str:
    """`at least 3 messages wait upstream`; exact where the number is known of all links, and still is."""
    there = f" {where}" if where else ""
    if messages:
        return f"{'' if is_exact else 'at least '}{counted(messages, 'message waits', 'messages wait')}{there}"
    return f"no messages wait{there}" if is_exact else f"how many messages wait{there} is not known"


def age(seconds: float) -> str:
    """A length of time as kubectl writes it: `45s`, `5m30s`, `12m`, `3h20m`, `4d`."""
    return "".join(f"{number}{unit}" for unit, number in _parts(seconds))


def in_words(seconds: float) -> str:
    """A length of time in its largest unit alone: `45 s`, `4 min`, `3 h`, `12 d`."""
    unit, number = _parts(seconds)[0]
    return f"{number} {_WORDS[unit]}"


def in_full(seconds: float) -> str:
    """A length of time in its two largest units: `3 min 17 s`; below a minute, as exactly as it is known: `1.5 s`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    return " ".join(f"{number} {_WORDS[unit]}" for unit, number in _parts(seconds))


def _parts(seconds: float) -> list[tuple[str, int]]:
    whole = max(0, int(seconds))
    for at, (unit, length) in enumerate(_UNITS):
        number, rest = divmod(whole, length)
        if number:
            if number < _TWO_BELOW.get(unit, 0):
                smaller, its_length = _UNITS[at + 1]
                if rest >= its_length:
                    return [(unit, number), (smaller, rest // its_length)]
            return [(unit, number)]
    return [("s", 0)]


def rfc3339(seconds: float, *, digits: str = "milliseconds") -> str:
    """Seconds since 1970 as RFC 3339, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=digits).replace("+00:00", "Z")


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
