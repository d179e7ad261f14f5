"""JSON schemas from types: the TypedDict of an answer is the one definition of its shape.

In `Annotated` a text is a description; a pair is a keyword of JSON Schema and its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Json = dict[str, Any]

Count = Annotated[int, ("minimum", 0)]
Seconds = Annotated[float, ("minimum", 0)]
Time = Annotated[str, ("format", "date-time")]
LinkId = Annotated[str, ("pattern", "^[0-9a-f]{8}$")]

_PLAIN: Final[Mapping[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def schema_of(of: Any, named: Mapping[Any, str]) -> Json:
    """The schema of a type; one that is `named` is referred to by that name."""
    origin, arguments = get_origin(of), get_args(of)
    if origin is Annotated:
        more = (("description", each) if isinstance(each, str) else each for each in arguments[1:])
        keywords = {keyword: list(value) if isinstance(value, tuple) else value for keyword, value in more}
        return schema_of(arguments[0], named) | keywords
    if origin is NotRequired:
        return schema_of(arguments[0], named)
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"type": "string", "enum": list(arguments)}
    if origin in {Union, UnionType}:
        return _any_of([schema_of(each, named) for each in arguments])
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0], named)}
    return _simple(of, named) if origin is None else {"type": "object"}


def object_schema(of: Any, named: Mapping[Any, str]) -> Json:
    """The schema of a TypedDict, written out."""
    hints = get_type_hints(of, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired} | of.__optional_keys__
    return {
        "type": "object",
        "required": [name for name in hints if name not in optional],
        "properties": {name: schema_of(hint, named) for name, hint in hints.items()},
    }


def _simple(of: Any, named: Mapping[Any, str]) -> Json:
    if is_typeddict(of):
        return {"$ref": f"#/components/schemas/{named[of]}"} if of in named else object_schema(of, named)
    if isinstance(of, type) and issubclass(of, StrEnum):
        return {"type": "string", "enum": [str(each) for each in of]}
    return {} if of in {Any, object} else {"type": _PLAIN[of]}


def _any_of(schemas: list[Json]) -> Json:
    first, *others = schemas
    if others == [{"type": "null"}] and isinstance(first.get("type"), str) and first.keys().isdisjoint(_NOT_SIMPLE):
        return first | {"type": [first["type"], "null"]}
    return {"anyOf": schemas}


_NOT_SIMPLE: Final = frozenset({"enum", "properties", "items"})
