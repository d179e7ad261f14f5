"""The types of single values: checked strictly, published as JSON Schema, and with errors that quote nothing."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from agent.core import fields
from agent.core.addresses import uri
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import AmqpUri, HttpUrl, parse_http, parse_peer
from agent.core.fields import Table
from agent.core.links.lag import LagCritical
from agent.core.links.read_limits import RateLimit
from agent.core.rules import headers
from agent.core.rules.patterns import Pattern
from agent.core.text import did_you_mean
from agent.definitions.document.findings import quoted
from agent.definitions.document.yaml import LongNumber
from agent.errors import UriError

Parsed = TypeVar("Parsed")

MAX_SHORT_TEXT = 255  # AMQP's short strings, in bytes
MAX_EXPIRY = 2**32 - 1  # what brokers take for x-expires and x-message-ttl
MAX_ADDRESSES = 1_000  # of one upstream; each is read separately
MAX_PREFETCH = 2**16 - 1
MAX_RATE = 10**12  # of messages or bytes in a second


def refuse(message: str) -> PydanticCustomError:
    return PydanticCustomError("agent", "{message}", {"message": message})


def key(description: str, **more: Any) -> Any:
    """An optional key; `model_fields_set` shows whether it was given."""
    return Field(default=None, description=description, **more)


def kind_of(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int():
            return "a number"
        case float():
            return "a number with a fraction"
        case LongNumber():
            return "a number that is too large"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case _:
            return "a mapping"


def _whole(value: object) -> object:
    """JSON encoders sometimes write 1000 as 1000.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _short(value: str) -> str:
    if len(value.encode("utf-8", "surrogatepass")) > MAX_SHORT_TEXT:
        raise refuse(f"longer than {MAX_SHORT_TEXT} bytes, the limit of AMQP")
    return value


def _unsurrogated(value: object) -> object:
    """JSON can contain lone surrogates, which no broker accepts."""
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise refuse("half of a character (a lone surrogate)")
    return value


@dataclass(frozen=True, slots=True, eq=False)
class AlsoWritten:
    """Another form in which a mapping may be written: `read` returns the mapping, `schema` allows that form."""

    read: Callable[[object], object]
    schema: JsonSchemaValue

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), self.schema]}


def _mapping(value: object) -> object:
    return {} if value is None else value


MAY_BE_EMPTY: Final = AlsoWritten(_mapping, {"type": "null"})
"""A mapping whose keys are all commented out, which YAML reads as null, is empty."""

Text: TypeAlias = Annotated[str, BeforeValidator(_unsurrogated)]
ShortText: TypeAlias = Annotated[
    Text, AfterValidator(_short), WithJsonSchema({"type": "string", "maxLength": MAX_SHORT_TEXT})
]
Name: TypeAlias = Annotated[
    Text,
    AfterValidator(_short),
    Field(min_length=1),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_SHORT_TEXT}),
]
INTEGRAL = BeforeValidator(_whole)
_TIME: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*(ms|s|sec|m|min|h|d|w)\s*")
_TIME_SCHEMA: Final = {"type": "string", "pattern": r"^\s*\d{1,9}(\.\d{1,3})?\s*(ms|s|sec|m|min|h|d|w)\s*$"}
_IN_MS: Final = {
    "ms": 1, "s": 1_000, "sec": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip


def _seconds(value: object) -> float | None:
    """The seconds of a time such as `10m`; None for anything else."""
    given = _TIME.fullmatch(value) if isinstance(value, str) else None
    return None if given is None else float(given[1]) * _IN_MS[given[2]] / 1000


def _without_unit(value: object) -> object:
    given = _TIME.fullmatch(value) if isinstance(value, str) else None
    if given is not None:
        written = round(float(given[1]) * _IN_MS[given[2]])
        raise refuse(f"it is in milliseconds, without a unit: for {given[1]} {given[2]} write {written}")
    return value


WITHOUT_UNIT: Final = BeforeValidator(_without_unit)

Milliseconds: TypeAlias = Annotated[int, Field(ge=0, le=MAX_EXPIRY), INTEGRAL, WITHOUT_UNIT]
SecondsOrNone: TypeAlias = Annotated[float, Field(ge=0, le=MAX_EXPIRY / 1000, allow_inf_nan=False)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=MAX_EXPIRY / 1000, allow_inf_nan=False)]


def _prefetch(value: object) -> object:
    if isinstance(value, str):
        if value != "auto":
            raise refuse("expected a whole number or auto")
        return None
    if value is None:
        raise refuse("expected a whole number or auto, got nothing")
    return _whole(value)


Prefetch: TypeAlias = Annotated[
    Annotated[int, Field(ge=0, le=MAX_PREFETCH)] | None,
    BeforeValidator(_prefetch),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 0, "maximum": MAX_PREFETCH}]}),
]


def _seconds_or_never(value: object) -> object:
    if value == "never":
        return None
    if value is None:
        raise refuse("expected a number of seconds or never, got nothing")
    seconds = _seconds(value)
    if seconds is None and isinstance(value, str):
        raise refuse("expected a number of seconds, a time such as 10m, or never")
    return value if seconds is None else seconds


SecondsOrNever: TypeAlias = Annotated[
    Annotated[float, Field(gt=0, le=MAX_EXPIRY / 1000, allow_inf_nan=False)] | None,
    BeforeValidator(_seconds_or_never),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "never"},
                {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_EXPIRY / 1000},
                _TIME_SCHEMA,
            ]
        }
    ),
]


def _seconds_or_off(value: object) -> object:
    if value == "off" or value is False:  # YAML reads off as false
        return None
    seconds = _seconds(value)
    if seconds is None and (isinstance(value, str | bool) or value is None):
        raise refuse("expected a number of seconds, a time such as 10s, or off")
    return value if seconds is None else seconds


SecondsOrOff: TypeAlias = Annotated[
    Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] | None,
    BeforeValidator(_seconds_or_off),
    WithJsonSchema(
        {"anyOf": [{"enum": ["off", False]}, {"type": "number", "minimum": 1, "maximum": 3600}, _TIME_SCHEMA]}
    ),
]


def _lag_limit(value: object) -> object:
    if value == "off" or value is False:  # YAML reads off as false
        return None
    seconds = _seconds(value)
    if seconds is not None:
        if not 0 < seconds <= MAX_EXPIRY / 1000:
            raise refuse("a time above 0, such as 5m, and not more than half a century")
        return LagCritical(seconds=seconds)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63:
        return LagCritical(messages=value)
    raise refuse("expected a time such as 5m, a number of messages above 0, or off")


LagLimit: TypeAlias = Annotated[
    LagCritical | None,
    PlainValidator(_lag_limit),
    WithJsonSchema({"anyOf": [{"enum": ["off", False]}, {"type": "integer", "minimum": 1}, _TIME_SCHEMA]}),
]


def _secret(value: object) -> Secret:
    if not isinstance(value, str):
        raise refuse(f"expected text, got {kind_of(value)}; put it in quotes")
    _unsurrogated(value)
    return Secret(value)


SecretText: TypeAlias = Annotated[
    Secret, BeforeValidator(_secret), WithJsonSchema({"type": "string", "writeOnly": True})
]


def accepted_by(check: Callable[[str], None]) -> AfterValidator:
    """A key that replaces a part of a URI is checked by the rules of that part."""

    def checked(value: Any) -> Any:
        try:
            check(value.reveal() if isinstance(value, Secret) else value)
        except UriError as error:
            raise refuse(str(error)) from None
        return value

    return AfterValidator(checked)


def _parser(parse: Callable[[str], Any]) -> Callable[[object], Any]:
    def check(value: object) -> Any:
        if not isinstance(value, str):
            raise refuse(f"expected text, got {kind_of(value)}")
        try:
            return parse(value)
        except UriError as error:
            raise refuse(str(error)) from None

    return check


def readable(value: object, parse: Callable[[str], Parsed]) -> list[Parsed]:
    """The valid texts of a text or list of texts, for rules that see the value before it is checked."""
    found: list[Parsed] = []
    for text in value[:MAX_ADDRESSES] if isinstance(value, list) else [value]:
        with contextlib.suppress(UriError):
            found += [parse(text)] if isinstance(text, str) else []
    return found


def _one_or_many(value: object) -> object:
    """RabbitMQ accepts a list of endpoints wherever it accepts one."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and not value:
        raise refuse("the list is empty; name at least one")
    if isinstance(value, list) and len(value) > MAX_ADDRESSES:
        raise refuse(f"more than {MAX_ADDRESSES} of them")
    if isinstance(value, list):
        return tuple(value)
    raise refuse(f"expected text or a list of texts, got {kind_of(value)}")


def _one_or_many_schema(pattern: str = "") -> WithJsonSchema:
    one = {"type": "string", "pattern": pattern} if pattern else {"type": "string"}
    return WithJsonSchema({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})


OneAmqpUri: TypeAlias = Annotated[AmqpUri, BeforeValidator(_parser(uri.parse))]
OneHttpUrl: TypeAlias = Annotated[HttpUrl, BeforeValidator(_parser(parse_http))]
AmqpUris: TypeAlias = Annotated[
    tuple[OneAmqpUri, ...], BeforeValidator(_one_or_many), _one_or_many_schema("^[Aa][Mm][Qq][Pp][Ss]?://")
]
HttpUrls: TypeAlias = Annotated[
    tuple[OneHttpUrl, ...], BeforeValidator(_one_or_many), _one_or_many_schema("^[Hh][Tt][Tt][Pp][Ss]?://")
]
PeerUrls: TypeAlias = Annotated[
    tuple[Annotated[HttpUrl, BeforeValidator(_parser(parse_peer))], ...],
    BeforeValidator(_one_or_many),
    _one_or_many_schema("^[Hh][Tt][Tt][Pp][Ss]?://"),
]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(_one_or_many), _one_or_many_schema()]


MAX_PATTERN = 1024  # RabbitMQ 4.3's own limit, in bytes


def check_regex(value: str) -> str:
    if len(value.encode("utf-8", "surrogatepass")) > MAX_PATTERN:
        raise refuse(f"a pattern may not be longer than {MAX_PATTERN} bytes")
    try:
        Pattern(value)
    except ValueError as error:
        raise refuse(str(error)) from None
    return value


Regex: TypeAlias = Annotated[Text, AfterValidator(check_regex)]


def _patterns(value: object) -> object:
    if isinstance(value, list) and len(value) > MAX_PATTERNS:
        raise refuse(f"more than {MAX_PATTERNS} of them")
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


MAX_PATTERNS = 1_000
Regexes: TypeAlias = Annotated[
    tuple[Regex, ...],
    BeforeValidator(_patterns),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""A regular expression, or a list of them, which may be empty."""


def _table(value: object) -> Table:
    value = _mapping(value)
    if not isinstance(value, dict):
        raise refuse(f"expected a mapping, got {kind_of(value)}")
    _check_table(value)
    return fields.ordered(fields.table_from_json(value))


MAX_TABLE_DEPTH = 64


def _check_table(value: object, depth: int = 0) -> None:
    if depth > MAX_TABLE_DEPTH:
        raise refuse(f"nested deeper than {MAX_TABLE_DEPTH} levels")
    match value:
        case dict():
            for name, item in value.items():
                _short(str(_unsurrogated(name)))
                _check_table(item, depth + 1)
        case list():
            for item in value:
                _check_table(item, depth + 1)
        case float() if not math.isfinite(value):
            raise refuse("a number in it is not finite")
        case int() if not isinstance(value, bool) and value not in fields.INT64:
            raise refuse("a number in it does not fit into 64 bits")
        case _:
            _unsurrogated(value)


Arguments: TypeAlias = Annotated[Table, BeforeValidator(_table), WithJsonSchema({"type": ["object", "null"]})]


def _allowed_by(problem_of: Callable[[Any], str]) -> AfterValidator:
    """Rules can't be about every header."""

    def checked(value: Any) -> Any:
        problem = problem_of(value)
        if problem:
            raise refuse(problem)
        return value

    return AfterValidator(checked)


def _names(value: object) -> object:
    return () if value is None else tuple(value) if isinstance(value, list) else value


SetHeaders: TypeAlias = Annotated[
    Arguments,
    _allowed_by(headers.problem_of_set),
    WithJsonSchema({"type": ["object", "null"], "maxProperties": headers.MOST_RULES}),
]
RemovedHeaders: TypeAlias = Annotated[
    tuple[ShortText, ...],
    BeforeValidator(_names),
    _allowed_by(headers.problem_of_removed),
    WithJsonSchema(
        {
            "type": ["array", "null"],
            "items": {"type": "string", "maxLength": MAX_SHORT_TEXT},
            "maxItems": headers.MOST_RULES,
        }
    ),
]
_UNITS: Final = ("messages", "bytes")


def _rate_limit(value: object) -> object:
    if value == "off":
        return None
    if not isinstance(value, dict) or not value:
        raise refuse(f"expected messages, bytes or both, each a number in a second, or off, got {kind_of(value)}")
    for unit, number in value.items():
        if unit not in _UNITS:
            raise refuse(f"unknown key {quoted(unit)}{did_you_mean(unit, _UNITS)}")
        if isinstance(number, bool) or not isinstance(_whole(number), int) or not 0 < number <= MAX_RATE:
            raise refuse(f"{unit}: expected a whole number in a second, from 1 to {MAX_RATE:,}")
    written: dict[str, Any] = {unit: _whole(number) for unit, number in value.items()}
    return RateLimit(**written)


_RATE: Final = {"type": "integer", "minimum": 1, "maximum": MAX_RATE}
RateLimits: TypeAlias = Annotated[
    RateLimit | None,
    PlainValidator(_rate_limit),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "off"},
                {
                    "type": "object",
                    "properties": dict.fromkeys(_UNITS, _RATE),
                    "additionalProperties": False,
                    "minProperties": 1,
                },
            ]
        }
    ),
]
