"""AMQP tables as JSON that keeps the tags, so that what comes back is equal to what was sent."""

from __future__ import annotations

from typing import Any

from agent.core.fields import Field, Table


def to_tagged(entries: Table) -> list[list[Any]]:
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
