"""Parses Erlang terms like `file:consult`: bytes of a 2.x configuration → terms with their locations. No message quotes
a token: it may be a secret."""

from __future__ import annotations

import codecs
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeAlias, TypeVar

from agent.errors import ConfigurationError, Place, Problem


class LegacyError(ConfigurationError):
    """A 2.x configuration that can't be imported; problems never quote possible secrets."""


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
class ErlangToken:
    """`kind` is the mark itself for punctuation, and `end` after the last token."""

    kind: str
    value: str | int | float
    at: Place


class ErlangText:
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


def tokenize(source: ErlangText) -> Iterator[ErlangToken]:
    """Every token, then one of kind `end`."""
    offset = 0
    while offset < len(source.text):
        found = _TOKEN.match(source.text, offset)
        if found is None:
            source.fail(offset, _why_no_token(source.text, offset))
        if found.lastgroup != "blank":
            yield _token(source, str(found.lastgroup), found.group(), offset)
        offset = found.end()
    yield ErlangToken("end", "", source.place(offset))


def _token(source: ErlangText, group: str, text: str, offset: int) -> ErlangToken:
    at = source.place(offset)
    if group == "string" or text.startswith("'"):
        return ErlangToken(group, _unescape(source, text[1:-1], offset + 1), at)
    if group == "float":
        return ErlangToken(group, _float(text, at), at)
    if group == "integer":
        return ErlangToken(group, _integer(text, at), at)
    if group == "character":
        return ErlangToken("integer", _character(source, text[1:], offset + 1), at)
    return ErlangToken(text if group == "punctuation" else group, text, at)


def _unescape(source: ErlangText, text: str, offset: int) -> str:
    """The characters of a quoted text; offset is its position in the file."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _escaped(source, found, offset + found.start()), text)


def _escaped(source: ErlangText, found: re.Match[str], offset: int) -> str:
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


def _character(source: ErlangText, text: str, offset: int) -> int:
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


MAX_BYTES: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 200
_NOWHERE = Place("")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Atom:
    name: str
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Integer:
    value: int
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Float:
    value: float
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class String:
    text: str
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    data: bytes
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Tuple:
    items: tuple[Term, ...]
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class List:
    items: tuple[Term, ...]
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Map:
    """Its pairs as tuples of two, so that it can be read like a property list."""

    items: tuple[Tuple, ...]
    at: Place = field(default=_NOWHERE, compare=False)


Term: TypeAlias = Atom | Integer | Float | String | Binary | Tuple | List | Map

_KINDS = {
    "atom": "an atom",
    "string": "a string",
    "integer": "a number",
    "float": "a number",
    "end": "the end of the file",
}
_CLOSING = ("]", "}", ">>")
_HINT = "look for a bracket closed too early or too late"


@dataclass(frozen=True, slots=True)
class Document:
    """The terms of a file; a file that isn't UTF-8 is read as Latin-1."""

    terms: tuple[Term, ...]
    is_latin1: bool = False


def parse(data: bytes, *, file: str) -> Document:
    """Returns the terms, or raises LegacyError with the first error."""
    if len(data) > MAX_BYTES:
        fail(
            Place(file, 1, 1), f"the file is larger than {MAX_BYTES // 1024**2} MiB: it is not a broker's configuration"
        )
    try:
        text, is_latin1 = data.removeprefix(codecs.BOM_UTF8).decode("utf-8"), False
    except UnicodeDecodeError:
        text, is_latin1 = data.decode("latin-1"), True
    source = ErlangText(text, file)
    if "\0" in text:
        source.fail(text.index("\0"), "a NUL byte: this is not text, or it is UTF-16; save it as UTF-8")
    return Document(_TermParser(source).terms(), is_latin1)


class _TermParser:
    def __init__(self, source: ErlangText) -> None:
        self._tokens = tokenize(source)
        self._next = next(self._tokens)
        self._depth = 0

    def terms(self) -> tuple[Term, ...]:
        terms: list[Term] = []
        while self._next.kind != "end":
            terms.append(self._term())
            if self._next.kind != "end":
                self._take(".", f"a full stop or the end of the file belongs here, not {_kind(self._next)}; {_HINT}")
        return tuple(terms)

    def _term(self) -> Term:
        token = self._advance()
        match token.kind:
            case "atom":
                return Atom(str(token.value), token.at)
            case "string":
                return String(self._adjacent(token), token.at)
            case "integer" | "float" | "+" | "-":
                return self._number(token)
            case "{":
                return Tuple(self._items("}", token, self._term), token.at)
            case "[":
                return List(self._items("]", token, self._term), token.at)
            case "<<":
                return Binary(b"".join(self._items(">>", token, self._segment)), token.at)
            case "#":
                opening = self._take("{", "only a map, #{key => value}, may begin with #")
                return Map(self._items("}", opening, self._pair), token.at)
        return self._no_term(token)

    def _items(self, closing: str, opening: ErlangToken, item: Callable[[], _T]) -> tuple[_T, ...]:
        """The items up to the closing mark, separated by commas."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            fail(opening.at, f"nested deeper than {MAX_DEPTH} levels; no setting needs that")
        items: list[_T] = []
        while self._next.kind != closing:
            self._separate(closing, opening, is_first=not items)
            items.append(item())
        self._advance()
        self._depth -= 1
        return tuple(items)

    def _separate(self, closing: str, opening: ErlangToken, *, is_first: bool) -> None:
        """Consumes the comma between two items, or reports what is wrong in its place."""
        found = self._next
        if found.kind in {"end", "."}:
            fail(opening.at, f"this {opening.kind} is never closed; write {closing} where it ends")
        if is_first:
            return
        if found.kind == "|":
            fail(found.at, "a list with a tail ([… | Tail]) isn't supported; write its elements one by one")
        where = f"{opening.kind} of line {opening.at.line}"
        if found.kind in _CLOSING:
            fail(found.at, f"{found.kind} doesn't close the {where}; write {closing} first")
        self._take(",", f"a comma or {closing} belongs before {_kind(found)}, within the {where}")
        if self._next.kind == closing:
            fail(found.at, f"nothing follows this comma before {closing}; take it out or write what is missing")

    def _adjacent(self, first: ErlangToken) -> str:
        """A string with those that follow it: Erlang joins them."""
        texts = [str(first.value)]
        while self._next.kind == "string":
            texts.append(str(self._advance().value))
        return "".join(texts)

    def _number(self, token: ErlangToken) -> Integer | Float:
        value, sign = token.value, 1
        if token.kind in {"+", "-"}:
            sign = -1 if token.kind == "-" else 1
            value = self._advance().value if self._next.kind in {"integer", "float"} else ""
        if isinstance(value, str):
            fail(token.at, "a sign belongs before a number only; put text into double quotes")
        return Integer(sign * value, token.at) if isinstance(value, int) else Float(sign * value, token.at)

    def _pair(self) -> Tuple:
        at = self._next.at
        key = self._term()
        self._take("=>", "a map's key and value are joined by =>")
        return Tuple((key, self._term()), at)

    def _segment(self) -> bytes:
        token = self._advance()
        if token.kind == "string":
            text: str | int = self._adjacent(token)
        elif token.kind in {"integer", "+", "-"}:
            text = int(self._number(token).value)
        else:
            fail(token.at, 'a binary holds strings and numbers only, as in <<"text">> or <<1,2,3>>')
        is_utf8 = self._is_utf8()
        if isinstance(text, str):
            return text.encode("utf-8")
        if not is_utf8:
            return bytes([text & 0xFF])
        if not 0 <= text <= 0x10FFFF or 0xD800 <= text < 0xE000:
            fail(token.at, "there is no character with this number")
        return chr(text).encode("utf-8")

    def _is_utf8(self) -> bool:
        if self._next.kind == ":":
            fail(self._next.at, "sizes in binaries aren't supported; write the bytes one by one")
        if self._next.kind != "/":
            return False
        self._advance()
        kind = self._take("atom", 'a type belongs after the /, as in <<"text"/utf8>>')
        if kind.value not in {"utf8", "binary", "integer"}:
            fail(kind.at, "only the type utf8 is supported; write the bytes one by one")
        return kind.value == "utf8"

    def _no_term(self, token: ErlangToken) -> NoReturn:
        if token.kind == "...":
            fail(token.at, "'...' marks an omission; write the rest, or remove the dots")
        if token.kind == ",":
            fail(token.at, "nothing comes before this comma; remove it or write what is missing")
        fail(token.at, f"a term belongs here, not {_kind(token)}; {_HINT}")

    def _advance(self) -> ErlangToken:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _take(self, kind: str, message: str) -> ErlangToken:
        if self._next.kind != kind:
            fail(self._next.at, message)
        return self._advance()


def _kind(token: ErlangToken) -> str:
    return _KINDS.get(token.kind, token.kind)
