"""Property lists, and the kinds of values that 2.x wrote in them. No message quotes a value: it may be a secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from agent.definitions.document.findings import in_order
from agent.definitions.sources.legacy.erlang import (
    Atom,
    Binary,
    Float,
    Integer,
    LegacyError,
    List,
    Map,
    String,
    Term,
    Tuple,
    fail,
)
from agent.definitions.sources.legacy.yaml_writer import BlockEntry, Value
from agent.errors import Place, Problem

MAX_NAME_BYTES = 255
MAX_SECONDS = 4_294_967
_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SURROGATES = range(0xD800, 0xE000)
_T = TypeVar("_T")
Converter: TypeAlias = Callable[[Term], Value]


@dataclass(frozen=True, slots=True)
class Property:
    key: str
    value: Term
    at: Place


@dataclass(frozen=True, slots=True)
class Rule:
    """The key and value that a 2.x property has now; where `read` returns None it is omitted."""

    key: str
    read: Converter
    comment: str = ""


@dataclass(slots=True)
class LegacyProblems:
    """Collects all problems of a file, to report them together."""

    found: list[Problem] = field(default_factory=list)

    def add(self, at: Place, message: str) -> None:
        self.found.append(Problem(at, message))

    def attempt(self, what: str, read: Callable[[Term], _T], term: Term) -> _T | None:
        """The value of the term, or None and a problem."""
        try:
            return read(term)
        except LegacyError as error:
            self.found.extend(Problem(problem.place, f"{what}: {problem.message}") for problem in error.problems)
            return None

    def check(self) -> None:
        if self.found:
            raise LegacyError(dict.fromkeys(in_order(self.found)))


@dataclass(frozen=True, slots=True)
class PropertyList:
    """A property list; if a key occurs twice the first counts, as in 2.x."""

    at: Place
    found: Mapping[str, Property] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def entries(self, rules: Mapping[str, Rule], problems: LegacyProblems) -> Iterator[BlockEntry]:
        """The current keys in the order of the rules."""
        for name, rule in rules.items():
            if name in self.found:
                value = problems.attempt(name, rule.read, self.found[name].value)
                if value is not None:
                    yield BlockEntry(rule.key, value, rule.comment)

    def without_counterpart(self, known: Iterable[str]) -> tuple[str, ...]:
        """A note for each property without a counterpart."""
        unknown = (self.found[name] for name in self.found if name not in set(known))
        return tuple(f"{shown(each)} (line {each.at.line}): no counterpart, omitted" for each in unknown)


def shown(each: Property) -> str:
    """A property's name, unless it may be a stray piece of a secret."""
    return each.key if _WORD.fullmatch(each.key) and each.value.at != each.at else "a property"


def property_list(term: Term, what: str, problems: LegacyProblems) -> PropertyList:
    items = items_of(term)
    if items is None:
        problems.add(term.at, f"{what}: write a list of properties, as in [{{key, value}}, …]")
        return PropertyList(term.at)
    found: dict[str, Property] = {}
    notes: list[str] = []
    for item in items:
        each = _property(item)
        if each is None:
            problems.add(item.at, f"{what}: write this entry as {{key, value}}")
        elif each.key in found:
            notes.append(f"{shown(each)} (line {each.at.line}): given before, and 2.x used the first; omitted")
        else:
            found[each.key] = each
    return PropertyList(term.at, found, tuple(notes))


def _property(item: Term) -> Property | None:
    match item:
        case Atom(name):
            return Property(name, Atom("true", item.at), item.at)
        case Tuple((key, value)):
            written = text_of(key)
            return None if written is None else Property(written, value, item.at)
    return None


def items_of(term: Term) -> tuple[Term, ...] | None:
    """The elements of a list or map; None for another term."""
    match term:
        case List(items) | Map(items):
            return items
        case String(""):
            return ()
    return None


def property_lists(term: Term) -> tuple[Term, ...] | None:
    """The property lists of a list; one without its own brackets counts too."""
    items = items_of(term)
    return (term,) if items and all(isinstance(item, Tuple) for item in items) else items


def text_of(term: Term) -> str | None:
    """The text of a string, a binary, an atom or a list of characters; None for another term."""
    match term:
        case String(text) | Atom(text):
            return text
        case Binary(data):
            return _decoded(data)
        case List(items):
            codes = [item.value for item in items if isinstance(item, Integer)]
            if len(codes) < len(items) or not all(0 <= code <= 0x10FFFF and code not in _SURROGATES for code in codes):
                return None
            return _decoded(bytes(codes)) if all(code < 0x100 for code in codes) else "".join(map(chr, codes))
    return None


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def literal(text: str) -> str:
    """A text in which the agent's `${…}` is escaped."""
    return text.replace("${", "$${")


def text(term: Term) -> str:
    found = text_of(term)
    if found is None:
        fail(term.at, 'write text, as in "text"')
    return found


def written_text(term: Term) -> str:
    return literal(text(term))


def name(term: Term) -> str:
    """A name that AMQP accepts."""
    found = text(term)
    if not found or len(found.encode("utf-8")) > MAX_NAME_BYTES:
        fail(term.at, f"write a name of 1 to {MAX_NAME_BYTES} bytes")
    return found


def key_name(term: Term) -> str:
    """A name that becomes a key of the document, where a `${…}` can't be escaped."""
    found = name(term)
    if "${env:" in found or "${file:" in found:
        fail(term.at, "${env: and ${file: can't be used in a name that becomes a key; rename it on the broker and here")
    return found


def written_name(term: Term) -> str:
    return literal(name(term))


def written_short(term: Term) -> str:
    """A text that AMQP accepts as a name; it may be empty."""
    return written_name(term) if text(term) else ""


def whole(low: int, high: int) -> Converter:
    def read(term: Term) -> int:
        if not isinstance(term, Integer) or not low <= term.value <= high:
            fail(term.at, f"write a whole number from {low} to {high}")
        return term.value

    return read


def seconds(term: Term) -> int | float:
    if not isinstance(term, Integer | Float) or not 0 <= term.value <= MAX_SECONDS:
        fail(term.at, f"write a number of seconds from 0 to {MAX_SECONDS}")
    return term.value


def flag(term: Term) -> bool:
    if text_of(term) not in {"true", "false"}:
        fail(term.at, "write true or false")
    return text_of(term) == "true"


def one_of(*words: str) -> Converter:
    by_lower = {word.lower(): word for word in words}

    def read(term: Term) -> str:
        found = by_lower.get((text_of(term) or "").lower())
        if found is None:
            fail(term.at, f"write one of {', '.join(words)}")
        return found

    return read


def is_unset(term: Term) -> bool:
    """2.x's way to say that a property isn't given."""
    return isinstance(term, Atom) and term.name in {"none", "undefined"}


def or_none(read: Converter) -> Converter:
    return lambda term: None if is_unset(term) else read(term)
