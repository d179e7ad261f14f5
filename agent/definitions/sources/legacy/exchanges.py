"""Federated exchanges of 2.x, and their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.core.fields import INT64
from agent.definitions.sources.legacy.erlang import Atom, Float, Integer, Term, Tuple, fail
from agent.definitions.sources.legacy.properties import (
    Converter,
    LegacyProblems,
    Rule,
    flag,
    items_of,
    key_name,
    literal,
    name,
    properties,
    text_of,
    whole,
    written_name,
    written_text,
)
from agent.definitions.sources.legacy.yaml_writer import Block, BlockEntry, Rows, Value
from agent.errors import Place

_BUILT_IN = ("direct", "fanout", "topic", "headers")


@dataclass(frozen=True, slots=True)
class LegacyExchange:
    """`upstream_set` and `set_at` are the name of its set and the location."""

    name: str
    vhost: str
    upstream_set: str
    set_at: Place
    block: Block


def _type(term: Term) -> Value:
    if text_of(term) == "x-federation":
        fail(term.at, "x-federation can't be based on itself; write topic, or the type the exchange has")
    found = name(term)
    if found not in _BUILT_IN and not found.startswith("x-"):
        fail(term.at, f"write one of {', '.join(_BUILT_IN)}, or a plugin's type, which begins with x-")
    return literal(found)


def _internal(term: Term) -> Value:
    return None if flag(term) else False


def _declarable(term: Term) -> str:
    found = key_name(term)
    if found.startswith("amq."):
        fail(term.at, "names that begin with amq. are the broker's own; name another")
    return found


def _arguments(term: Term) -> Block:
    items = items_of(term)
    if items is None:
        fail(term.at, 'write a list, as in [{<<"key">>, longstr, <<"value">>}]')
    return Block(tuple({entry.key: entry for entry in map(_argument, items)}.values()))


def _argument(term: Term) -> BlockEntry:
    match term:
        case Tuple((key, kind, value)):
            return BlockEntry(key_name(key), _typed(kind, value))
        case Tuple((key, value)):
            return BlockEntry(key_name(key), _untyped(value))
    return fail(term.at, 'write {<<"key">>, longstr, <<"value">>}')


def _array(term: Term) -> Value:
    return Rows(tuple(_element(item) for item in items_of(term) or ()))


def _element(term: Term) -> Value:
    match term:
        case Tuple((kind, value)):
            return _typed(kind, value)
    return _untyped(term)


def _typed(kind: Term, value: Term) -> Value:
    read = _AMQP_TYPES.get(text_of(kind) or "")
    if read is None:
        fail(kind.at, f"this AMQP type has no counterpart; write one of {', '.join(_AMQP_TYPES)}")
    return read(value)


def _untyped(value: Term) -> Value:
    match value:
        case Atom("true") | Atom("false"):
            return flag(value)
        case Integer():
            return _integer(value)
        case Float(number):
            return number
    return written_text(value)


def _real(term: Term) -> Value:
    if not isinstance(term, Integer | Float):
        fail(term.at, "write a number")
    return float(term.value)


def _void(_: Term) -> Value:
    return None


_integer: Converter = whole(INT64.start, INT64.stop - 1)
_INTEGERS = ("signedint", "unsignedint", "long", "short", "unsignedshort", "byte", "unsignedbyte", "timestamp")
_AMQP_TYPES: dict[str, Converter] = {
    "longstr": written_text,
    "binary": written_text,
    "bool": flag,
    **dict.fromkeys(_INTEGERS, _integer),
    "float": _real,
    "double": _real,
    "table": _arguments,
    "array": _array,
    "void": _void,
}
_RULES = {
    "type": Rule("type", _type),
    "durable": Rule("durable", flag),
    "auto_delete": Rule("auto-delete", flag),
    "internal": Rule("internal", _internal),
    "upstream_set": Rule("upstream-set", written_name),
    "arguments": Rule("arguments", _arguments, "2.x declared the exchange without them"),
}
_MANDATORY = {
    "exchange": 'add {exchange, "…"}',
    "type": 'add {type, "topic"}, or the type the exchange has',
    "upstream_set": 'add {upstream_set, "…"}, a name from upstream_sets',
}
_NAMES: dict[str, Callable[[Term], str]] = {"exchange": _declarable, "virtual_host": key_name, "upstream_set": name}
PROPERTIES = ("exchange", "virtual_host", *_RULES)


def read_exchange(term: Term, default_vhost: str, problems: LegacyProblems) -> LegacyExchange | None:
    given = properties(term, "exchange", problems)
    for key, advice in _MANDATORY.items():
        if key not in given.found:
            problems.add(given.at, f"the exchange has no {key}; {advice}")
    entries = tuple(given.entries(_RULES, problems))
    names = {
        key: problems.attempt(key, read, given.found[key].value) for key, read in _NAMES.items() if key in given.found
    }
    exchange, upstream_set = names.get("exchange"), names.get("upstream_set")
    if exchange is None or upstream_set is None:
        return None
    notes = (*given.notes, *given.without_counterpart(PROPERTIES))
    if "internal" in given.found and all(entry.key != "internal" for entry in entries):
        notes = (*notes, "internal: internal exchanges can't be federated, so clients may publish to this one")
    vhost = names.get("virtual_host") or default_vhost
    return LegacyExchange(exchange, vhost, upstream_set, given.found["upstream_set"].value.at, Block(entries, notes))
