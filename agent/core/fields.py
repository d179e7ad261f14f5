"""AMQP 0-9-1 field values that keep their tags, because brokers compare and match by them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

INT64 = range(-(2**63), 2**63)
MAX_DEPTH = 64
MAX_VALUES = 10_000  # in the arguments of one object; a frame of 128 KiB, which declares one, rarely holds as many
UNREAD = "(unread)"
"""The key for the reason why parts of an object in an HTTP API's response could not be read."""


class UnusableError(ValueError):
    """JSON values that AMQP can't represent; the message completes "it …"."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value: `tag` is AMQP's letter; tables hold a `Table`, arrays a tuple of `Field`.

    A value that Python can't represent exactly, or that wasn't decoded, is bytes: what follows the tag on the wire.
    """

    tag: str
    value: Any


Table: TypeAlias = tuple[tuple[str, Field], ...]
EMPTY: Table = ()


def text(value: str) -> Field:
    return Field("S", value)


def long(value: int) -> Field:
    return Field("l", value)


def short(value: int) -> Field:
    return Field("s", value)


def boolean(value: bool) -> Field:
    return Field("t", value)


def array(*values: Field) -> Field:
    return Field("A", values)


def table(entries: Table) -> Field:
    return Field("F", entries)


def get(entries: Table, name: str) -> Field | None:
    return next((value for key, value in entries if key == name), None)


def without(entries: Table, name: str) -> Table:
    return tuple((key, value) for key, value in entries if key != name)


def ordered(entries: Table) -> Table:
    """The table sorted by name, as RabbitMQ sorts a binding's arguments, so that equal bindings compare equal."""
    return tuple(sorted(entries, key=lambda entry: entry[0]))


def from_json(value: Any) -> Field:
    """The field that RabbitMQ creates from a JSON value; its HTTP API shows no tags."""
    match value:
        case None:
            return Field("V", None)
        case bool():
            return boolean(value)
        case int() if value in INT64:
            return long(value)
        case int() | float():
            return Field("d", _double(value))
        case str():
            return text(value)
        case list() | tuple():
            return array(*(from_json(item) for item in value))
        case dict():
            return table(table_from_json(value))
        case _:
            raise TypeError(f"no AMQP field for a {type(value).__name__}")


def _double(value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UnusableError("holds a number that is out of AMQP's range")
    return number


def check_json(value: Any) -> None:
    """Raises UnusableError if a value is nested too deeply or contains too many values; not recursive."""
    left, depth, level = MAX_VALUES, 0, [value]
    while level:
        left -= len(level)
        if left < 0:
            raise UnusableError(f"holds more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise UnusableError(f"is nested deeper than {MAX_DEPTH} levels")
        depth += 1
        level = [inner for each in level if isinstance(each, dict | list) for inner in _inside(each)]


def _inside(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    found = value.values() if isinstance(value, dict) else value
    return itertools.islice(found, MAX_VALUES + 1)


def table_from_json(value: dict[str, Any]) -> Table:
    return tuple((str(key), from_json(item)) for key, item in value.items())


def to_json(field: Field) -> Any:
    match field.tag:
        case "F" if isinstance(field.value, tuple):
            return table_to_json(field.value)
        case "A" if isinstance(field.value, tuple):
            return [to_json(item) for item in field.value]
        case _:
            return field.value


def table_to_json(entries: Table) -> dict[str, Any]:
    return {key: to_json(value) for key, value in entries}


def to_tagged(entries: Table) -> list[list[Any]]:
    """The table as JSON that keeps the tags, so that what comes back is equal to what was sent."""
    return [[name, _to_tagged(value)] for name, value in entries]


def from_tagged(entries: Any) -> Table:
    """The table from its JSON. Raises ValueError where somebody else wrote it."""
    try:
        return tuple((str(name), _from_tagged(value)) for name, value in entries)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError("not a table with tags") from error


def _to_tagged(field: Field) -> list[Any]:
    match field.value:
        case bytes(raw):
            return [field.tag, raw.decode("latin-1"), "bytes"]
        case tuple(items) if field.tag == "F":
            return [field.tag, to_tagged(items)]
        case tuple(items):
            return [field.tag, [_to_tagged(item) for item in items]]
        case value:
            return [field.tag, value]


def _from_tagged(entry: Any) -> Field:
    match entry:
        case [str(tag), str(raw), "bytes"]:
            return Field(tag, raw.encode("latin-1"))
        case ["F", list(items)]:
            return Field("F", from_tagged(items))
        case ["A", list(items)]:
            return Field("A", tuple(_from_tagged(item) for item in items))
        case [str(tag), (bool() | int() | float() | str() | None) as value] if tag not in {"A", "F"}:
            return Field(tag, value)
        case _:
            raise ValueError("not a field with its tag")
