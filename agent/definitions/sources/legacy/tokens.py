"""The tokens of Erlang terms, each with its location. No message quotes a token: it may be a secret."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from agent.definitions.sources.legacy.errors import LegacyError
from agent.errors import Place, Problem

MAX_DIGITS = 200
_SURROGATES = range(0xD800, 0xE000)
_TOKEN = re.compile(
    r"""(?P<blank>(?:[\x01-\x20\x80-\xa0]+|%[^\n]*)+)
      | (?P<atom>[a-z\xdf-\xf6\xf8-\xff][A-Za-z0-9_@\xc0-\xd6\xd8-\xf6\xf8-\xff]*|'(?:[^'\\]|\\(?:\^.|.))*')
      | (?P<string>"(?:[^"\\]|\\(?:\^.|.))*")
      | (?P<float>[0-9]+(?:_[0-9]+)*\.[0-9]+(?:_[0-9]+)*(?:[eE][+-]?[0-9]+)?)
      | (?P<integer>[0-9]+(?:_[0-9]+)*(?:\#[0-9A-Za-z]+(?:_[0-9A-Za-z]+)*)?)
      | (?P<character>\$(?:\\(?:\^.|x\{[^}]*\}|x..|[0-7]{1,3}|.)|[^\\]))
      | (?P<punctuation><<|>>|=>|\.\.\.|[{}\[\],|.:/+\-#])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:\^(.)|x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([0-7]{1,3})|(.))", re.DOTALL)
_NAMED_ESCAPES = {"b": "\b", "d": "\x7f", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "s": " ", "t": "\t", "v": "\v"}
_NEVER_ENDS = {
    '"': "the string that begins here never ends; close it with a double quote",
    "'": "the quoted atom that begins here never ends; close it with a single quote",
}
_TYPOGRAPHIC = "\u2018\u2019\u201c\u201d\u00ab\u00bb"


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is the mark itself for punctuation, and `end` after the last token."""

    kind: str
    value: str | int | float
    at: Place


class Source:
    """A file's text, with the positions of its lines."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def place(self, offset: int) -> Place:
        line = bisect_right(self._lines, offset)
        return Place(self.file, line, offset - self._lines[line - 1] + 1)

    def fail(self, offset: int, message: str) -> NoReturn:
        fail(self.place(offset), message)


def fail(at: Place, message: str) -> NoReturn:
    raise LegacyError([Problem(at, message)])


def tokenize(source: Source) -> Iterator[Token]:
    """Every token, then one of kind `end`."""
    offset = 0
    while offset < len(source.text):
        found = _TOKEN.match(source.text, offset)
        if found is None:
            source.fail(offset, _why_no_token(source.text, offset))
        if found.lastgroup != "blank":
            yield _token(source, str(found.lastgroup), found.group(), offset)
        offset = found.end()
    yield Token("end", "", source.place(offset))


def _token(source: Source, group: str, text: str, offset: int) -> Token:
    at = source.place(offset)
    if group == "string" or text.startswith("'"):
        return Token(group, _unescape(source, text[1:-1], offset + 1), at)
    if group == "float":
        return Token(group, _float(text, at), at)
    if group == "integer":
        return Token(group, _integer(text, at), at)
    if group == "character":
        return Token("integer", _character(source, text[1:], offset + 1), at)
    return Token(text if group == "punctuation" else group, text, at)


def _unescape(source: Source, text: str, offset: int) -> str:
    """The characters of a quoted text; offset is its position in the file."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _escaped(source, found, offset + found.start()), text)


def _escaped(source: Source, found: re.Match[str], offset: int) -> str:
    control, long_hexadecimal, hexadecimal, octal, plain = found.groups()
    if control is not None:
        if not "?" <= control <= "\x7f":
            source.fail(offset, "this is not a control character; write \\^A to \\^Z, or \\\\ for a backslash")
        return "\x7f" if control == "?" else chr(ord(control) & 0x1F)
    if plain == "x":
        source.fail(offset, "\\x needs two hexadecimal digits, or some within braces; write \\\\ for a backslash")
    if plain is not None:
        return _NAMED_ESCAPES.get(plain, plain)
    digits = long_hexadecimal or hexadecimal
    code = int(digits, 16) if digits else int(octal, 8)
    if code > 0x10FFFF or code in _SURROGATES:
        source.fail(offset, "there is no character with this number; write one below 110000 that is not a surrogate")
    return chr(code)


def _character(source: Source, text: str, offset: int) -> int:
    char = _unescape(source, text, offset)
    if len(char) != 1:
        source.fail(offset, "$ is followed by no character that Erlang knows; write $a, $\\n or $\\x41")
    return ord(char)


def _integer(text: str, at: Place) -> int:
    if len(text) > MAX_DIGITS:
        fail(at, "the number is too long; no setting needs one of this size")
    base, mark, digits = text.replace("_", "").rpartition("#")
    if not mark:
        return int(digits)
    if not 2 <= int(base) <= 36:
        fail(at, "the base of a number is from 2 to 36")
    try:
        return int(digits, int(base))
    except ValueError as error:
        raise LegacyError([Problem(at, "a digit does not belong to the number's base")]) from error


def _float(text: str, at: Place) -> float:
    value = float(text.replace("_", ""))
    if math.isinf(value):
        fail(at, "the number is too large; no setting needs one of this size")
    return value


def _why_no_token(text: str, offset: int) -> str:
    char = text[offset]
    if char in _NEVER_ENDS:
        return _NEVER_ENDS[char]
    if char in _TYPOGRAPHIC:
        return "a typographic quote; write \" around strings and ' around atoms"
    if char == "_" or char.isupper():
        return "variables aren't allowed in a configuration; quote the word: \"…\" for a string, '…' for an atom"
    if char == "$":
        return "$ needs a character after it"
    return "this character isn't allowed here; put text into double quotes"
