"""Text from outside, made safe to show: on a terminal, in a log for people, on a page.

Why: docs/decisions/0022-text-from-outside.md
"""

from __future__ import annotations

import unicodedata
from typing import Final

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
