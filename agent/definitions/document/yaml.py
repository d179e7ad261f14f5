"""YAML → a tree with the line and column of every key and value, within fixed limits.

Composed from the parser's events: no objects are constructed, so nothing in a document can run, and limits apply while
the text is read. Aliases share their node and are counted as if copied. Plain scalars are those of the core schema of
YAML 1.2: `yes`, `on`, `1:30` and dates are text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml as pyyaml

from agent.definitions.document.findings import Path, file_error, file_problem, quoted
from agent.errors import ConfigurationError, Problem
from agent.read_file import UnreadableError, read_file

MAX_BYTES = 1024 * 1024
MAX_NODES = 50_000  # together with MAX_BYTES keeps the worst file below a second
MAX_DEPTH = 64
MAX_PROBLEMS = 100

_LOADER: Any = getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader)


@dataclass(slots=True)
class YamlEntry:
    """A key of a mapping, its location, and its value."""

    line: int
    column: int
    node: YamlNode


Content: TypeAlias = "Scalar | list[YamlNode] | dict[str, YamlEntry]"


@dataclass(slots=True)
class YamlNode:
    line: int
    column: int
    content: Content
    size: int = 1
    height: int = 0


@dataclass(frozen=True, slots=True)
class Tree:
    source: str
    root: YamlNode | None
    problems: tuple[Problem, ...] = ()

    def plain(self, resolve: Callable[[str, Path], str] = lambda text, _: text) -> Any:
        """The tree as plain data; `resolve` returns the value of each text."""
        return None if self.root is None else _plain(self.root, (), resolve)

    def position(self, path: Path, *, key: bool) -> tuple[int, int]:
        """The location of the path's value, or of its key; of the longest part of the path that exists."""
        node = self.root
        if node is None:
            return 1, 1
        at_key = (node.line, node.column)
        for part in path:
            if isinstance(node.content, dict) and isinstance(part, str) and part in node.content:
                entry = node.content[part]
                node, at_key = entry.node, (entry.line, entry.column)
            elif isinstance(node.content, list) and isinstance(part, int) and 0 <= part < len(node.content):
                node = node.content[part]
                at_key = (node.line, node.column)
            else:
                break
        return at_key if key else (node.line, node.column)


def compose_file(path: str, *, is_followed: bool = False) -> Tree:
    """The tree of a file; raises ConfigurationError, also if it can't be read."""
    try:
        data = read_file(path, MAX_BYTES, is_followed=is_followed)
    except UnreadableError as error:
        raise file_error(path, str(error)) from error
    return compose(data, path)


def compose(data: bytes, source: str) -> Tree:
    """Raises ConfigurationError if reading can't continue; other errors are kept in the tree."""
    text = decode(data, source)
    composer = _Composer(source)
    try:
        for event in pyyaml.parse(text, Loader=_LOADER):
            composer.take(event)
    except pyyaml.YAMLError as error:
        failure = scanner_error(error, text, source)
    else:
        return Tree(source, composer.root, tuple(composer.problems))
    raise ConfigurationError([*composer.problems, *failure.problems])


@dataclass(slots=True)
class _Open:
    """A list or mapping that hasn't ended yet."""

    node: YamlNode
    anchor: str | None
    key: tuple[str, int, int] | None = None
    awaits_value: bool = False
    merges: list[YamlNode] | None = None


class _Composer:
    def __init__(self, source: str) -> None:
        self.root: YamlNode | None = None
        self.problems: list[Problem] = []
        self._source = source
        self._open: list[_Open] = []
        self._anchors: dict[str, YamlNode | None] = {}
        self._nodes = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        match event:
            case pyyaml.ScalarEvent():
                self._scalar(event)
            case pyyaml.MappingStartEvent() | pyyaml.SequenceStartEvent():
                self._begin(event)
            case pyyaml.MappingEndEvent() | pyyaml.SequenceEndEvent():
                self._end()
            case pyyaml.AliasEvent():
                self._alias(event)
            case pyyaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise self._fatal("a second document begins here; a file holds one", event)

    def _scalar(self, event: Any) -> None:
        self._refuse_tag(event)
        self._count(event, 1)
        plain, frame = event.implicit[0], self._awaits_key()
        if frame is not None:
            self._key(frame, event, plain=plain)
        else:
            node = YamlNode(*_place(event), resolve_scalar(event.value) if plain else event.value)
            self._finish(node, event.anchor)

    def _awaits_key(self) -> _Open | None:
        """The open mapping, if a key or its end has to follow."""
        frame = self._open[-1] if self._open else None
        return None if frame is None or frame.awaits_value or isinstance(frame.node.content, list) else frame

    def _key(self, frame: _Open, event: Any, *, plain: bool) -> None:
        line, column = _place(event)
        text: str = event.value
        if plain and not isinstance(resolve_scalar(text), str):
            self._add("a key must be text; put it in quotes", line, column)
        if event.anchor:
            self._anchors[event.anchor] = YamlNode(line, column, text)
        frame.awaits_value = True
        frame.key = None if plain and text == "<<" else (text, line, column)

    def _begin(self, event: Any) -> None:
        self._refuse_tag(event)
        self._count(event, 1)
        if len(self._open) >= MAX_DEPTH:
            raise self._fatal(f"nested deeper than {MAX_DEPTH} levels", event)
        if self._awaits_key() is not None:
            raise self._fatal("a key must be text, not a list or mapping; quote text that begins with [ or {", event)
        content: Content = {} if isinstance(event, pyyaml.MappingStartEvent) else []
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open(YamlNode(*_place(event), content), event.anchor))

    def _end(self) -> None:
        frame = self._open.pop()
        node = frame.node
        if isinstance(node.content, dict):
            for merged in frame.merges or ():
                self._merge(node, merged)
        self._finish(node, frame.anchor)

    def _alias(self, event: Any) -> None:
        node = self._anchors.get(event.anchor)
        if node is None:
            inside = event.anchor in self._anchors
            raise self._fatal(
                "the alias is inside the value that it repeats"
                if inside
                else "the alias names an anchor that isn't defined",
                event,
            )
        if self._awaits_key() is not None:
            raise self._fatal("an alias can't be a key", event)
        self._count(event, node.size)
        if len(self._open) + node.height > MAX_DEPTH:
            raise self._fatal(f"nested deeper than {MAX_DEPTH} levels by its aliases", event)
        self._finish(node, None)

    def _finish(self, node: YamlNode, anchor: str | None) -> None:
        """Adds a complete node to the open one."""
        if anchor:
            self._anchors[anchor] = node
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        parent = frame.node
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if isinstance(parent.content, list):
            parent.content.append(node)
        elif isinstance(parent.content, dict):
            self._value(frame, parent.content, node)

    def _value(self, frame: _Open, entries: dict[str, YamlEntry], node: YamlNode) -> None:
        frame.awaits_value = False
        if frame.key is None:
            frame.merges = [*(frame.merges or ()), node]
            return
        text, line, column = frame.key
        if text in entries:
            first = entries[text]
            self._add(f"the key {quoted(text)} is already written in line {first.line}", line, column)
            return
        entries[text] = YamlEntry(line, column, node)

    def _merge(self, into: YamlNode, merged: YamlNode) -> None:
        parts = merged.content if isinstance(merged.content, list) else [merged]
        for part in parts:
            if not isinstance(part.content, dict):
                self._add("'<<' takes an alias of a mapping, or a list of them", merged.line, merged.column)
                return
            for text, entry in part.content.items():
                if isinstance(into.content, dict):
                    into.content.setdefault(text, entry)

    def _count(self, event: Any, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self._fatal(f"more than {MAX_NODES} keys and values, aliases expanded", event)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            raise self._fatal("tags ('!') aren't supported; quote the text", event)

    def _add(self, message: str, line: int, column: int) -> None:
        self.problems.append(file_problem(self._source, message, line, column))
        if len(self.problems) >= MAX_PROBLEMS:
            raise ConfigurationError(self.problems)

    def _fatal(self, message: str, event: Any) -> ConfigurationError:
        return ConfigurationError([*self.problems, file_problem(self._source, message, *_place(event))])


def _plain(node: YamlNode, path: Path, resolve: Callable[[str, Path], str]) -> Any:
    match node.content:
        case str():
            return resolve(node.content, path)
        case list():
            return [_plain(item, (*path, number), resolve) for number, item in enumerate(node.content)]
        case dict():
            return {key: _plain(entry.node, (*path, key), resolve) for key, entry in node.content.items()}
        case _:
            return node.content


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


Scalar: TypeAlias = str | int | float | bool | None

LONGEST_NUMBER = 64


class LongNumber(str):
    """Digits that are text, because they are too many for a number; messages distinguish them."""

    __slots__ = ()


_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER = re.compile(
    r"(?P<int>[-+]?[0-9]+)|0o(?P<oct>[0-7]+)|0x(?P<hex>[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
)
_NUMBER_STARTS = frozenset("+-.0123456789")


def resolve_scalar(text: str) -> Scalar:
    """The value of a plain scalar; anything longer than a number is text, so that no conversion is slow."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    found = _NUMBER.fullmatch(text) if text[0] in _NUMBER_STARTS else None
    if found is None:
        return text
    if len(text) > LONGEST_NUMBER:
        return LongNumber(text)
    match found.lastgroup:
        case "int":
            return int(text)
        case "oct":
            return int(found["oct"], 8)
        case "hex":
            return int(found["hex"], 16)
        case _:
            return float(text)


_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_BOM = b"\xef\xbb\xbf"


def decode(data: bytes, source: str) -> str:
    if data.startswith(_WIDE) or (b"\x00" in data[:4]):
        raise file_error(source, "the file is not UTF-8 (UTF-16, or not text); save it as UTF-8")
    data = data.removeprefix(_BOM)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise file_error(source, message, *position(before, len(before))) from None
    if found := _UNPRINTABLE.search(text):
        line, column = position(text, found.start())
        code = f"U+{ord(found[0]):04X}"
        raise file_error(source, f"the control character {code} isn't allowed here", line, column)
    return text


def position(text: str, offset: int) -> tuple[int, int]:
    """1-based line and column of an offset."""
    line_start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - line_start + 1


# Start of the scanner's message → our message. Other messages may quote the document, so they aren't shown.
_WORDS = (
    ("mapping values are not allowed", "a ':' where no key is possible; quote text that contains ': '"),
    ("found character that cannot start any token", "a character that can't begin a value; quote the text"),
    ("found duplicate anchor", "the anchor is defined twice"),
    ("found unexpected end of stream", "the file ends inside a quoted text"),
    ("found unexpected document", "a document marker inside a quoted text"),
    ("did not find expected key", "a key was expected here; check the indentation and quotes above"),
    ("did not find expected '-' indicator", "a '-' was expected here; check the indentation"),
    ("did not find expected ',' or ']'", "a ',' or ']' is missing"),
    ("did not find expected ',' or '}'", "a ',' or '}' is missing"),
    ("did not find expected node content", "a value was expected here"),
    ("did not find expected <document start>", "the document should have ended here; check the indentation"),
    ("did not find expected comment or line break", "only a comment may follow here"),
    ("did not find expected alphabetic or numeric character", "the '&' or '*' needs a name; quote the text"),
    ("could not find expected ':'", "a ':' is missing after the key"),
    ("block sequence entries are not allowed", "a list can't begin here; check the indentation"),
    ("block mapping", "check the indentation"),
    ("found unknown escape character", "unknown escape after '\\'; use single quotes or double the '\\'"),
    ("found a tab character", "a tab; YAML indents with spaces"),
    ("found undefined tag handle", "tags ('!') aren't supported; quote the text"),
    ("while scanning a tag", "tags ('!') aren't supported; quote the text"),
    ("expected <block end>", "check the indentation"),
    ("expected ',' or ']'", "a ',' or ']' is missing"),
    ("expected ',' or '}'", "a ',' or '}' is missing"),
)


# The scanner notices these after the missing character; we report the start of the key or quote.
_FROM_THE_BEGINNING = ("could not find expected ':'", "found unexpected end of stream", "found unexpected document")
_LONGEST_KEY = 1024  # how far YAML scanners look ahead for the ':'


def scanner_error(error: pyyaml.YAMLError, text: str, source: str) -> ConfigurationError:
    said = f"{getattr(error, 'problem', '') or ''}"
    noticed, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    line, column = _numbers(noticed or begun)
    around = _line(text, line)
    if "\t" in around[max(column - 2, 0) : column + 1]:
        message = "a tab; YAML indents with spaces"
    elif long_key := _long_key(around, column):
        message, column = f"a key can't be longer than {_LONGEST_KEY} characters", long_key
    else:
        message = next((words for begin, words in _WORDS if said.startswith(begin)), "this is not YAML")
        if message.startswith("a ','") and "${" in around:
            message += ': quote ${…} inside braces and brackets, as in {uri: "${env:NAME}"}'
        line, column = _numbers(begun or noticed) if said.startswith(_FROM_THE_BEGINNING) else (line, column)
    return file_error(source, message, line, column)


def _numbers(mark: pyyaml.Mark | None) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _line(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line - 1] if line <= len(lines) else ""


def _long_key(around: str, column: int) -> int | None:
    """The column of the key before the ':' in this column, if it is too long for a key."""
    before = around[: column - 1]
    written = before[max(before.rfind(mark) for mark in "{,") + 1 :].lstrip()
    is_one = around[column - 1 : column] == ":" and len(written) > _LONGEST_KEY and ": " not in written
    return len(before) - len(written) + 1 if is_one else None
