"""Text from outside, made safe to show: on a terminal, in a log for people, on a page."""

from __future__ import annotations

import unicodedata
from typing import Final

_JOINERS: Final = frozenset("\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}")  # some scripts can't be written without


def printable(text: str, *, keep: str = "") -> str:
    r"""Shows what can't be seen, moves a cursor or turns the direction of letters as an escape: `\x1b`, `\u202e`.

    That is every control, format and separator character but the blanks, and what is no character at all. A
    backslash stays as it is, so an escape can't be told from the same letters written out: this is for reading.
    `keep` names characters to leave.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter in keep or _is_safe(letter) else _escaped(letter) for letter in text)


def _is_safe(letter: str) -> bool:
    return letter.isprintable() or letter in _JOINERS or unicodedata.category(letter) == "Zs"


def _escaped(letter: str) -> str:
    return repr(letter)[1:-1]
