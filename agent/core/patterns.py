"""Regular expressions as brokers read them: unanchored, Perl's syntax, and no match where one takes too long."""

from __future__ import annotations

import re
from typing import Final

import regex

_PATIENCE: Final = 1.0  # seconds; PCRE gives up on runaway backtracking too, by counting steps
# Repeats are unrolled: `a{99999999}` would take gigabytes. Names have 255 bytes, so this is plenty.
_MOST_UNROLLED: Final = 5_000
_PERL_ONLY: Final = re.compile(r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\k[<'{](?P<name>\w+)[>'}]|\\.", re.DOTALL)
_TOKEN: Final = re.compile(
    r"(?P<repeat>\{(?P<least>\d+)(?:,(?P<most>\d*))?\})|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL
)


class Pattern:
    """A compiled pattern over names."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        perl = _PERL_ONLY.sub(_translated, text)
        if _unrolled(perl) > _MOST_UNROLLED:
            raise ValueError(f"not a regular expression that can be used: it repeats more than {_MOST_UNROLLED} times")
        try:
            self._compiled = regex.compile(perl, regex.ASCII | regex.VERSION0, cache_pattern=False)
        except (regex.error, RecursionError, OverflowError, MemoryError) as error:
            raise ValueError(_reason(error)) from error

    def matches(self, name: str) -> bool:
        try:
            return self._compiled.search(name, timeout=_PATIENCE) is not None
        except TimeoutError:
            return False


def _translated(found: re.Match[str]) -> str:
    if found["quoted"] is not None:
        return regex.escape(found["quoted"])
    return f"(?P={found['name']})" if found["name"] else found[0]


def _unrolled(text: str) -> int:
    """About how many elements the pattern has once its repeats are written out."""
    sizes, last = [0], 0
    for token in _TOKEN.finditer(text):
        if token["repeat"]:
            times = min(int((token["most"] or token["least"])[:9]), 10**9)
            sizes[-1] += last * max(0, times - 1)
            last *= max(1, times)
        elif token[0] == "(":
            sizes.append(0)
        elif token[0] == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        else:
            last = 1
            sizes[-1] += 1
    return sum(sizes)


def _reason(error: Exception) -> str:
    if isinstance(error, regex.error):
        return f"not a regular expression: {error}"
    return "not a regular expression that can be used: nested too deeply or too large"
