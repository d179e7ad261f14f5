"""Regular expressions as in brokers: unanchored, Perl's syntax, and no result if matching takes too long.

Why: docs/decisions/0026-pattern-time-limits.md
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import regex

# Seconds. An ordinary pattern takes 1 µs per name; PCRE gives up on runaway backtracking too, by counting steps.
PER_NAME: Final = 0.005
PER_PATTERN: Final = 0.025  # in addition to ORDINARY for each name
PER_VHOST: Final = 0.1  # all patterns of a vhost together, in addition to ORDINARY for each name and pattern
TRIES: Final = 5
LEAST: Final = 0.01  # of a vhost, after others have used up the total
IN_ALL: Final = 1.0
ORDINARY: Final = 25e-6  # several times what it takes; time that one name doesn't use is available for the next
# Compiling an ordinary one takes 0.1 ms and 20 µs per character. The characters of a vhost's patterns are bounded when
# they are read, so a thousand ordinary policies don't use up the time for names.
COMPILED: Final = 0.0005
COMPILED_LETTER: Final = 40e-6
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

    def matches(self, name: str) -> bool | None:
        """True if the pattern matches the name; None if matching takes too long."""
        try:
            return self._compiled.search(name, timeout=PER_NAME) is not None
        except TimeoutError:
            return None


class TimeBudget:
    """The time that patterns may still take in one resolution; `clock` returns seconds, preferably of CPU time."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = clock
        self._left = IN_ALL

    def of_vhost(self) -> VhostTimeBudget:
        return VhostTimeBudget(self, max(LEAST, min(PER_VHOST, self._left)))

    def take(self, seconds: float) -> None:
        self._left -= seconds


class VhostTimeBudget:
    """The remaining time for the patterns of one vhost: those of one tenant don't affect the others."""

    def __init__(self, budget: TimeBudget, seconds: float) -> None:
        self._budget = budget
        self.clock = budget.clock
        self.left = seconds

    def take(self, seconds: float) -> None:
        self.left -= seconds
        self._budget.take(seconds)


class TimedPattern:
    """A pattern with bounds for one name and for all names together. Once it has used up its time, it is no longer
    tried."""

    __slots__ = ("_left", "_of_vhost", "_pattern", "problem")

    def __init__(self, text: str, budget: VhostTimeBudget, *, compile_: Callable[[str], Pattern] = Pattern) -> None:
        self.problem: str | None = None  # why some names could not be matched
        self._left = PER_PATTERN
        self._of_vhost = budget
        self._pattern: Pattern | None = None
        begun = budget.clock()
        try:
            self._pattern = compile_(text)
        except ValueError as error:  # the possible nesting depends on the depth of the caller's stack
            self.problem = str(error)
        extra = max(0.0, budget.clock() - begun - COMPILED - COMPILED_LETTER * len(text))
        # What is longer is Python collecting its garbage, as nothing so long is compiled: no fault of this pattern.
        budget.take(min(extra, PER_PATTERN))

    def matches(self, name: str) -> bool | None:
        """True if the pattern matches the name; None if that isn't known: it can't be used, or its time is used up."""
        if self._pattern is None:
            return None
        if self._left <= 0 or self._of_vhost.left <= 0:
            self.problem = TOO_SLOW
            return None
        found, took = self._judge(self._pattern, name)
        if found is None:
            self.problem = TOO_SLOW
        self._left += ORDINARY - took
        self._of_vhost.take(took - ORDINARY)
        return found

    def _judge(self, pattern: Pattern, name: str) -> tuple[bool | None, float]:
        """The result and its cost. `regex` counts time in which the process didn't run: if it gives up and the clock
        shows that hardly any time was used, the machine is busy and the name is tried again."""
        took = 0.0
        for _ in range(TRIES):
            begun = self._of_vhost.clock()
            found = pattern.matches(name)
            # A longer time isn't the pattern's, as it would have given up: for example Python's garbage collection.
            took += min(self._of_vhost.clock() - begun, PER_NAME)
            if found is not None:
                return found, took
            if took >= PER_NAME / 2:
                break
        return None, max(took, PER_NAME)


TOO_SLOW: Final = "it takes too long; write it without repeats inside repeats, as in (a|aa)+"


def _translated(found: re.Match[str]) -> str:
    if found["quoted"] is not None:
        return regex.escape(found["quoted"])
    return f"(?P={found['name']})" if found["name"] else found[0]


def _unrolled(text: str) -> int:
    """About how many elements the pattern has after its repeats are unrolled."""
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
