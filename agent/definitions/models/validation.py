"""The base of all models of the configuration, and the check of a value against one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from agent.core.text import did_you_mean
from agent.definitions.document.findings import Path, Spot, quoted
from agent.definitions.models.values import kind_of


def kebab(name: str) -> str:
    return name.replace("_", "-")


class StrictModel(BaseModel):
    """A mapping of the configuration; `noun` is its name in messages."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=kebab, hide_input_in_errors=True, defer_build=True
    )
    noun: ClassVar[str]

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        """Reports errors that involve several keys; gets the mapping as written, since other keys may be wrong."""

    @classmethod
    def about_unknown(cls, name: str) -> str:
        """Advice to add about an unknown key."""
        return did_you_mean(name, (found.alias or known for known, found in cls.model_fields.items()))

    def written(self) -> dict[str, Any]:
        """The keys that were given, by the names of the core's model."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class SnakeCaseModel(StrictModel):
    """RabbitMQ spells the keys of TLS options and message properties with underscores."""

    model_config = ConfigDict(alias_generator=None)


AnyModel = TypeVar("AnyModel", bound=StrictModel)

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
}
_LIMITS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_LIKE_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def check(model: type[AnyModel], raw: object, spot: Spot) -> AnyModel | None:
    """The model, or None after all its errors were reported."""
    before = spot.findings.errors
    if isinstance(raw, dict):
        model.rules(raw, spot)
    try:
        value = model.model_validate(raw)
    except ValidationError as error:
        details = error.errors(include_url=False)
    else:
        return value if spot.findings.errors == before else None
    for detail in details:
        _report(detail, model, spot)
    return None


def _report(detail: ErrorDetails, model: type[StrictModel], spot: Spot) -> None:
    path = detail["loc"]
    path = path[:-1] if path[-1:] == ("[key]",) else path  # pydantic's suffix for the key of a mapping
    inner = _model_at(model, path[:-1]) or model
    match detail["type"]:
        case "extra_forbidden":
            name = str(path[-1])
            hint = inner.about_unknown(name)
            spot.error(f"unknown key {quoted(name)} in {inner.noun}{hint}", *path, key=True)
        case "missing":
            spot.error(f"{inner.noun} needs the key '{path[-1]}'", *path[:-1], key=True)
        case _:
            names = ".".join(part for part in path if isinstance(part, str))
            spot.error(f"{names}: {_message(detail)}" if names else _message(detail), *path)


def _message(detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "agent":
        return str(context["message"])
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {kind_of(value)}{_hint(kind, value)}"
    if kind in _LIMITS:
        words, name = _LIMITS[kind]
        limit = context[name]
        return f"must be {words} {int(limit) if limit == int(limit) else limit}"
    return _special(kind, value, context)


def _special(kind: str, value: object, context: Mapping[str, Any]) -> str:
    match kind:
        case "enum" | "literal_error":
            expected = str(context["expected"])
            choices = expected.replace(" or ", ", ").replace("'", "").split(", ")
            return f"must be {expected}{did_you_mean(value, choices) if isinstance(value, str) else ''}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "finite_number":
            return "must be a finite number"
        case "int_parsing_size":
            return "the number is too large"
        case "string_unicode":
            return "half of a character (a lone surrogate)"
        case _:
            return f"can't be used here ({kind.replace('_', ' ')})"


def _hint(kind: str, value: object) -> str:
    if kind == "bool_type" and isinstance(value, str) and value.lower() in _LIKE_BOOLEANS:
        return f"; write {_LIKE_BOOLEANS[value.lower()]}"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    return ""


def _model_at(model: type[StrictModel], path: Path) -> type[StrictModel] | None:
    """The model of the mapping that a path leads to."""
    values: Any = None
    for part in path:
        if values is None:
            found = next((f.annotation for name, f in model.model_fields.items() if (f.alias or name) == part), None)
            values = get_args(found)[1] if get_origin(found) is dict else None
            inner = model if values is not None else found
        else:  # of a mapping of names
            inner, values = get_args(values)[0] if get_origin(values) is Annotated else values, None
        if not isinstance(inner, type) or not issubclass(inner, StrictModel):
            return None
        model = inner
    return model if values is None else None
