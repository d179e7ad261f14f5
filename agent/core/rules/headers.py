"""The headers that links and brokers act on, and the rules of operators for all others: `set-headers` and
`remove-headers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from agent.core.fields import Field, Table
from agent.core.rules import quarantine
from agent.core.rules.hops import INVALID_HEADERS, RECEIVED_FROM

SHOVELLED: Final = "x-shovelled"
SHOVELLED_AT: Final = "x-shovelled-timestamp"
ANNOTATIONS: Final = ("x-opt-shovelled-by", "x-opt-shovel-type", "x-opt-shovel-name")
"""The annotations that shovels add in place of these two if an end is `amqp10` or `local`."""
ANNOTATED_AT: Final = "x-opt-shovelled-timestamp"
ORIGINAL_EXCHANGE: Final = "x-original-exchange"
ORIGINAL_KEY: Final = "x-original-routing-key"
ORIGINAL_CC: Final = "x-original-cc"
PROBE: Final = "x-federation-agent-probe"
DELIVERY_COUNT: Final = "x-delivery-count"

MOST_RULES: Final = 20  # of one key: each name is searched for in every message
MOST_BYTES: Final = 2_048  # of all headers that are set: half of the smallest frame that AMQP allows
ANY: Final = "*"

_ROUTE: Final = "links find out by it where a message has been"
_REPLACED: Final = "links keep in it what they replace"
_DEATHS: Final = "brokers write it when they dead-letter a message, and find loops by it"
_NEVER: Final[dict[str, str]] = {
    **dict.fromkeys((RECEIVED_FROM, SHOVELLED, SHOVELLED_AT, *ANNOTATIONS, ANNOTATED_AT), _ROUTE),
    **dict.fromkeys((INVALID_HEADERS, ORIGINAL_EXCHANGE, ORIGINAL_KEY, ORIGINAL_CC), _REPLACED),
    **dict.fromkeys(("CC", "BCC"), "brokers send copies of a message to the queues in it"),
    PROBE: "the agent knows its probes by it",
    f"{quarantine.HEADERS}*": "a message in quarantine is restored by it",
}
"""The names that no rule may touch, or how they begin, each with the reason."""
_NEVER_SET: Final[dict[str, str]] = {
    **dict.fromkeys(("x-death", "x-first-death-*", "x-last-death-*"), _DEATHS),
    DELIVERY_COUNT: "quorum queues count in it how often a message came back",
}


def problem_of_set(headers: Table) -> str:
    """The reason why these headers can't be set, which names one that can't; empty if they can."""
    if len(headers) > MOST_RULES:
        return f"more than {MOST_RULES} headers"
    problem = _first_problem([name for name, _ in headers], _NEVER | _NEVER_SET)
    if problem:
        return problem
    size = size_of(headers)
    return f"{size:,} bytes in every message, more than {MOST_BYTES:,}" if size > MOST_BYTES else ""


def problem_of_removed(patterns: Sequence[str]) -> str:
    """The reason why headers of these names can't be removed, which names one that can't; empty if they can. A name
    that ends with * stands for all names that begin so."""
    if len(patterns) > MOST_RULES:
        return f"more than {MOST_RULES} names"
    if any(ANY in each[:-1] for each in patterns):
        return f"a {ANY} is allowed only at the end of a name"
    return _first_problem(patterns, _NEVER)


def prefix_of(pattern: str) -> str | None:
    """The beginning of the names that a pattern stands for; None if it is a name."""
    return pattern.removesuffix(ANY) if pattern.endswith(ANY) else None


def size_of(headers: Table) -> int:
    """The bytes that these headers take in a message, where they come from JSON or YAML."""
    return sum(1 + _length(name) + _size_of_value(value) for name, value in headers)


def _first_problem(patterns: Sequence[str], never: Mapping[str, str]) -> str:
    if "" in patterns:
        return "a name must not be empty"
    for pattern in patterns:
        for name, why in never.items():
            if pattern == name:
                return f"{pattern!r} can't be changed by a rule: {why}"
            if _overlap(pattern, name):
                return f"{pattern!r} would change {name}, which no rule may: {why}"
    return ""


def _overlap(pattern: str, other: str) -> bool:
    """True if one name may fit both."""
    prefix, of_other = prefix_of(pattern), prefix_of(other)
    if prefix is None:
        return pattern == other if of_other is None else pattern.startswith(of_other)
    return other.startswith(prefix) or (of_other is not None and prefix.startswith(of_other))


def _size_of_value(value: Field) -> int:
    match value.tag:
        case "V":
            return 1
        case "t":
            return 2
        case "S":
            return 5 + _length(value.value)
        case "F":
            return 5 + size_of(value.value)
        case "A":
            return 5 + sum(map(_size_of_value, value.value))
        case _:
            return 9  # numbers have 64 bits


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
