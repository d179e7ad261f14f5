"""Parses a JSON list of objects while it arrives: in bounded memory and short steps; an invalid object doesn't affect
others.

An object that is too large, nested too deeply, or has numbers that fit no type is still returned with its own plain
members; `UNREAD` is the key of the reason.

Why: docs/decisions/0025-problems-stay-in-a-vhost.md
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from agent.core.fields import MAX_DEPTH, UNREAD

MAX_OBJECT: Final = 512 * 1024  # characters; an upstream with a thousand addresses has 200,000
MAX_SKIPPED: Final = 8 * 1024 * 1024  # of objects that are too large; skipping them takes time, too
MAX_OBJECTS: Final = 150_000
MAX_VALUES: Final = 1_000_000  # of all objects together
STEP: Final = 64 * 1024  # bytes that are parsed at once: a few milliseconds
LONGEST_MEMBER: Final = 4096
_MOST_DIGITS: Final = 400  # more than any double has
_BLANKS: Final = re.compile(r"[ \t\n\r]*")


_Step: TypeAlias = dict[str, Any] | bool
"""An object, or True for progress without one; False if more data has to arrive first."""


class NotAListError(ValueError):
    """This is not a JSON list of objects."""


class TooMuchError(ValueError):
    """The list has more of something than any broker should have; the message says of what."""


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else math.inf


_DECODER: Final = json.JSONDecoder()
_PATIENT_DECODER: Final = json.JSONDecoder(parse_int=_whole)  # Python refuses to read thousands of digits


class ListReader:
    """Accepts the bytes of a response in pieces, and returns the objects that are complete."""

    def __init__(self) -> None:
        # Like short strings: a name that isn't UTF-8 keeps its bytes.
        self._bytes = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text = ""
        self._at = 0
        self._wanted = 0  # bytes needed before another attempt makes sense
        self._next = "["
        self._objects = 0
        self._values = 0
        self._skipped = 0
        self._skipping: _Outline | None = None

    def feed(self, data: bytes, *, final: bool = False) -> Iterator[dict[str, Any]]:
        """Raises NotAListError or TooMuchError; `final` with the last piece."""
        self._text = self._text[self._at :] + self._bytes.decode(data, final)
        self._at = 0
        while (found := self._step(final=final)) is not False:
            if isinstance(found, dict):
                yield found
        if final and self._next:
            raise NotAListError("the list doesn't end")

    def _step(self, *, final: bool) -> _Step:
        if self._skipping is not None:
            return self._skip(self._skipping)
        blanks = _BLANKS.match(self._text, self._at)
        self._at = self._at if blanks is None else blanks.end()
        letter = self._text[self._at : self._at + 1]
        if not letter:
            return False
        if self._next == "{" and letter == "{":
            return self._object(final=final)
        return self._punctuation(letter)

    def _punctuation(self, letter: str) -> _Step:
        if letter not in self._next and not (letter == "]" and self._next == "{" and not self._objects):
            raise NotAListError("not a list of objects")
        self._next = {"[": "{", ",": "{", "]": ""}[letter]
        self._at += 1
        return True

    def _object(self, *, final: bool) -> _Step:
        there = len(self._text) - self._at
        if there < self._wanted and not final:
            return False
        try:
            found, end = self._decode()
        except json.JSONDecodeError as error:
            if there > MAX_OBJECT:
                return self._give_up(f"is larger than {MAX_OBJECT // 1024} KiB")
            if final:
                raise NotAListError("no JSON") from error
            self._wanted = 2 * there  # so that a slow sender doesn't cause the same bytes to be parsed repeatedly
            return False
        except RecursionError:
            return self._give_up(f"is nested deeper than {MAX_DEPTH} levels")
        if end - self._at > MAX_OBJECT:
            return self._give_up(f"is larger than {MAX_OBJECT // 1024} KiB")
        if self._count(end) > MAX_DEPTH and is_deeper(found, MAX_DEPTH):
            return self._give_up(f"is nested deeper than {MAX_DEPTH} levels")
        self._at = end
        return self._passed(found)

    def _decode(self) -> tuple[dict[str, Any], int]:
        try:
            found: tuple[dict[str, Any], int] = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError:
            raise
        except ValueError:
            found = _PATIENT_DECODER.raw_decode(self._text, self._at)
        return found

    def _count(self, end: int) -> int:
        """The number of lists and objects in this one, including it."""
        containers = self._text.count("{", self._at, end) + self._text.count("[", self._at, end)
        self._values += containers + self._text.count(",", self._at, end)
        if self._values > MAX_VALUES:
            raise TooMuchError(f"more than {MAX_VALUES} values")
        return containers

    def _passed(self, found: dict[str, Any]) -> dict[str, Any]:
        self._objects += 1
        self._wanted = 0
        self._next = ",]"
        if self._objects > MAX_OBJECTS:
            raise TooMuchError(f"more than {MAX_OBJECTS} objects")
        return found

    def _give_up(self, reason: str) -> _Step:
        self._skipping = _Outline(reason)
        return True

    def _skip(self, outline: _Outline) -> _Step:
        before, self._at = self._at, outline.read(self._text, self._at)
        self._skipped += self._at - before
        if self._skipped > MAX_SKIPPED:
            raise TooMuchError(f"objects larger than {MAX_SKIPPED // 1024 // 1024} MiB")
        if not outline.is_complete:
            return False
        self._skipping = None
        return self._passed({**outline.members, UNREAD: outline.reason})


def is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_REST_OF_STRING: Final = re.compile(r"(?:[^\"\\]++|\\.)*+", re.DOTALL)
_INSIDE: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[{]++|[\]}]++|"', re.DOTALL)
_PLAIN: Final = re.compile(r"[\s:,\[\]{}]|[^\s:,\[\]{}\"]++")


class _Outline:
    """Scans an object to its end without building it; keeps its own plain members."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.members: dict[str, Any] = {}
        self.is_complete = False
        self._depth = 0
        self._in_string = False
        self._key: str | None = None
        self._is_value = False

    def read(self, text: str, at: int) -> int:
        """Continues at that position; returns where it stopped, for lack of data or at the end."""
        while at < len(text) and not self.is_complete:
            if self._in_string:
                at, moved = self._leave_string(text, at)
            elif text[at] == '"':
                at, moved = self._string(text, at)
            elif self._depth > 1:
                at, moved = self._inside(text, at)
            else:
                at, moved = self._plain(text, at)
            if not moved:
                break
        return at

    def _string(self, text: str, at: int) -> tuple[int, bool]:
        found = _STRING.match(text, at)
        if found is not None:
            self._note(found[0])
            return found.end(), True
        if len(text) - at <= LONGEST_MEMBER:
            return at, False
        self._in_string = True
        return at + 1, True

    def _leave_string(self, text: str, at: int) -> tuple[int, bool]:
        found = _REST_OF_STRING.match(text, at)
        at = at if found is None else found.end()
        if text[at : at + 1] != '"':
            return at, False  # more of it, or a backslash whose character hasn't arrived
        self._in_string = False
        self._note("")
        return at + 1, True

    def _inside(self, text: str, at: int) -> tuple[int, bool]:
        """Scans the values of members; only brackets matter there."""
        depth = self._depth
        for found in _INSIDE.finditer(text, at):
            first = found[0][0]
            if first == '"' and len(found[0]) == 1:  # a string whose end hasn't arrived
                self._depth = depth
                return found.start(), True
            if first in "[{":
                depth += len(found[0])
            elif first in "]}":
                closed = min(len(found[0]), depth - 1)
                depth -= closed
                if depth == 1:
                    self._depth = depth
                    return found.start() + closed, True
        self._depth = depth
        return len(text), True

    def _plain(self, text: str, at: int) -> tuple[int, bool]:
        found = _PLAIN.match(text, at)
        if found is None:
            return at, False
        match found[0]:
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                self.is_complete = self._depth == 0
            case ":":
                self._is_value = True
            case ",":
                self._is_value, self._key = False, None
            case word if found.end() == len(text) and len(word) <= LONGEST_MEMBER:
                return at, False  # it may continue
            case word:
                self._note(word)
        return found.end(), True

    def _note(self, word: str) -> None:
        """A key or a plain value of the object itself; empty if it is too long to matter."""
        if self._depth != 1:
            return
        value = _value_of(word)
        if not self._is_value:
            self._key = value if isinstance(value, str) else None
        elif self._key is not None and value is not None and len(self.members) < MAX_DEPTH:
            self.members[self._key] = value


def _value_of(word: str) -> Any:
    try:
        return json.loads(word) if len(word) <= LONGEST_MEMBER else None
    except ValueError:
        return None
