"""YAML → a tree with the line and column of every key and value, within fixed limits.

Composed from the parser's events: no objects are constructed, so nothing in a document can run, and limits apply while
the text is read. Aliases share their node and are counted as if copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml as pyyaml

from agent.definitions.document.findings import Path, file_problem, quoted
from agent.definitions.document.yaml_scalars import Scalar, resolve
from agent.definitions.document.yaml_text import decode, scanner_error
from agent.errors import ConfigurationError, Problem

MAX_BYTES = 1024 * 1024
MAX_NODES = 50_000  # together with MAX_BYTES keeps the worst file below a second
MAX_DEPTH = 64
MAX_PROBLEMS = 100

_LOADER: Any = getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader)


@dataclass(slots=True)
class Entry:
    """One key of a mapping, its location, and its value."""

    line: int
    column: int
    node: Node


Content: TypeAlias = "Scalar | list[Node] | dict[str, Entry]"


@dataclass(slots=True)
class Node:
    line: int
    column: int
    content: Content
    size: int = 1
    height: int = 0


@dataclass(frozen=True, slots=True)
class Tree:
    source: str
    root: Node | None
    problems: tuple[Problem, ...] = ()

    def plain(self, resolve: Callable[[str, Path], str] = lambda text, _: text) -> Any:
        """The tree as plain data; `resolve` returns the value of each text."""
        return None if self.root is None else _plain(self.root, (), resolve)

    def position(self, path: Path, *, key: bool) -> tuple[int, int]:
        """The location of the path's value, or of its key; of the longest part of the path that exists."""
        node = self.root
        if node is None:
            return 1, 1
        found = at_key = (node.line, node.column)
        for part in path:
            if isinstance(node.content, dict) and isinstance(part, str) and part in node.content:
                entry = node.content[part]
                node, at_key = entry.node, (entry.line, entry.column)
            elif isinstance(node.content, list) and isinstance(part, int) and 0 <= part < len(node.content):
                node = node.content[part]
                at_key = (node.line, node.column)
            else:
                break
            found = (node.line, node.column)
        return at_key if key else found


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

    node: Node
    anchor: str | None
    key: tuple[str, int, int] | None = None
    awaits_value: bool = False
    merges: list[Node] | None = None


class _Composer:
    def __init__(self, source: str) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._source = source
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
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
        plain = event.implicit[0]
        frame = self._open[-1] if self._open else None
        if frame is not None and not frame.awaits_value and isinstance(frame.node.content, dict):
            self._count(event, 1)
            self._key(frame, event, plain=plain)
            return
        node = Node(*_place(event), resolve(event.value) if plain else event.value)
        self._count(event, 1)
        self._finish(node, event.anchor)

    def _key(self, frame: _Open, event: Any, *, plain: bool) -> None:
        line, column = _place(event)
        text: str = event.value
        if plain and not isinstance(resolve(text), str):
            self._problem("a key must be text; put it in quotes", event)
        if event.anchor:
            self._anchors[event.anchor] = Node(line, column, text)
        frame.awaits_value = True
        frame.key = (text, line, column)
        if plain and text == "<<":
            frame.key = None

    def _begin(self, event: Any) -> None:
        self._refuse_tag(event)
        self._count(event, 1)
        if len(self._open) >= MAX_DEPTH:
            raise self._fatal(f"nested deeper than {MAX_DEPTH} levels", event)
        frame = self._open[-1] if self._open else None
        if frame is not None and isinstance(frame.node.content, dict) and not frame.awaits_value:
            raise self._fatal("a key must be text, not a list or mapping; quote text that begins with [ or {", event)
        content: Content = {} if isinstance(event, pyyaml.MappingStartEvent) else []
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open(Node(*_place(event), content), event.anchor))

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
        frame = self._open[-1] if self._open else None
        if frame is not None and isinstance(frame.node.content, dict) and not frame.awaits_value:
            raise self._fatal("an alias can't be a key", event)
        self._count(event, node.size)
        if len(self._open) + node.height > MAX_DEPTH:
            raise self._fatal(f"nested deeper than {MAX_DEPTH} levels by its aliases", event)
        self._finish(node, None)

    def _finish(self, node: Node, anchor: str | None) -> None:
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

    def _value(self, frame: _Open, entries: dict[str, Entry], node: Node) -> None:
        frame.awaits_value = False
        if frame.key is None:
            frame.merges = [*(frame.merges or ()), node]
            return
        text, line, column = frame.key
        if text in entries:
            first = entries[text]
            self._add(f"the key {quoted(text)} is already written in line {first.line}", line, column)
            return
        entries[text] = Entry(line, column, node)

    def _merge(self, into: Node, merged: Node) -> None:
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

    def _problem(self, message: str, event: Any) -> None:
        self._add(message, *_place(event))

    def _add(self, message: str, line: int, column: int) -> None:
        self.problems.append(file_problem(self._source, message, line, column))
        if len(self.problems) >= MAX_PROBLEMS:
            raise ConfigurationError(self.problems)

    def _fatal(self, message: str, event: Any) -> ConfigurationError:
        return ConfigurationError([*self.problems, file_problem(self._source, message, *_place(event))])


def _plain(node: Node, path: Path, resolve: Callable[[str, Path], str]) -> Any:
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
