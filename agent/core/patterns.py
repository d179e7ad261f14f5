"""Regular expressions as brokers read them: unanchored, Perl's syntax, and no match where one takes too long."""

from __future__ import annotations

import regex

_PATIENCE = 1.0  # seconds; PCRE gives up on runaway backtracking too, by counting steps


class Pattern:
    """A compiled pattern over names."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._compiled = regex.compile(text, regex.ASCII | regex.VERSION0)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ValueError(_reason(error)) from error

    def matches(self, name: str) -> bool:
        try:
            return self._compiled.search(name, timeout=_PATIENCE) is not None
        except TimeoutError:
            return False


def _reason(error: Exception) -> str:
    if isinstance(error, regex.error):
        return f"not a regular expression: {error}"
    return "not a regular expression that can be used: nested too deeply or too large"
