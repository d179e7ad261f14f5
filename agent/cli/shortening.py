"""Long names in little room: shortened where they don't differ, so that no two of them look alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

ELLIPSIS = "…"
MOST_AROUND = 5  # letters of a word
Span = tuple[int, int]


def differences(names: Iterable[str]) -> Mapping[str, Span]:
    """Where each name differs from the one that is most like it: what lies before and behind is common to both."""
    ordered = sorted(set(names))
    found: dict[str, Span] = dict.fromkeys(ordered, (0, 0))
    for first, second in pairwise(ordered):
        begin = _common(first, second)
        end = _common(first[begin:][::-1], second[begin:][::-1])
        for name in (first, second):
            if begin >= found[name][0]:
                found[name] = begin, len(name) - end
    return {name: _word(name, span) for name, span in found.items()}


def _word(name: str, span: Span) -> Span:
    """With the letters and digits around it: of 01 and 11 the same digit differs from their neighbours."""
    begin, end = span
    while begin > max(0, span[0] - MOST_AROUND) and name[begin - 1].isalnum():
        begin -= 1
    while end < min(len(name), span[1] + MOST_AROUND) and name[end].isalnum():
        end += 1
    return begin, end


def _common(first: str, second: str) -> int:
    """How long the beginning is that both have."""
    shorter = min(len(first), len(second))
    return next((at for at in range(shorter) if first[at] != second[at]), shorter)


def shortened(name: str, width: int, differs: Span) -> str:
    """Without a piece that is none of where it differs; most of what is left is the end, as names differ there."""
    if len(name) <= width:
        return name
    kept = max(0, width - len(ELLIPSIS))
    begin, end = differs
    third = kept // 3
    for head in (third, kept - third, kept - (len(name) - begin), end):
        behind = head + len(name) - kept  # where the end that is kept begins
        if 0 <= head <= kept and (behind <= begin or head >= end):
            return name[:head] + ELLIPSIS + name[behind:]
    room = max(0, kept - len(ELLIPSIS))
    first = max(0, min(begin, len(name) - room) - (room - min(room, end - begin)) // 2)
    return ELLIPSIS + name[first : first + room] + ELLIPSIS
