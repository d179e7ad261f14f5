"""Plain scalars by the core schema of YAML 1.2: `yes`, `on`, `1:30` and dates are text."""

from __future__ import annotations

import re
from typing import TypeAlias

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


def resolve(text: str) -> Scalar:
    """Anything longer than a number is text, so that no conversion is slow."""
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
