"""YAML with comments; YAML 1.1 and 1.2 readers get the same values."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from agent.core.text import printable

WIDTH = 110
_INDENT = "  "
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_MEANT_OTHERWISE = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """One key, with the comment beside it."""

    key: str
    value: Value
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping, with the notes above its entries."""

    entries: tuple[BlockEntry, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """A sequence."""

    items: tuple[Value, ...] = ()


Value: TypeAlias = Scalar | Block | Rows


def render(block: Block) -> str:
    """The document, ending in a newline."""
    return "".join(f"{line}\n" for line in _block(block))


def _block(block: Block) -> Iterator[str]:
    yield from _comments(block.notes)
    for entry in block.entries:
        beside = f"  # {printable(entry.comment)}" if entry.comment else ""
        inline = _inline(entry.value)
        if inline is not None:
            yield f"{_scalar(entry.key)}: {inline}{beside}"
            continue
        yield f"{_scalar(entry.key)}:{beside}"
        yield from _indented(_lines(entry.value))


def _lines(value: Value) -> Iterator[str]:
    match value:
        case Block():
            yield from _block(value)
        case Rows(items):
            for item in items:
                yield from _row(item)


def _row(item: Value) -> Iterator[str]:
    inline = _inline(item)
    if inline is not None:
        yield f"- {inline}"
    elif isinstance(item, Block):
        yield from _comments(item.notes)
        first, *rest = _block(Block(item.entries))
        yield f"- {first}"
        yield from _indented(rest)
    else:
        yield "-"
        yield from _indented(_lines(item))


def _inline(value: Value) -> str | None:
    """A value that fits beside its key; None if it needs separate lines."""
    match value:
        case Block():
            return None if value.entries else "{}"
        case Rows(items):
            return None if items else "[]"
        case _:
            return _scalar(value)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (_INDENT + line for line in lines)


def _comments(texts: Iterable[str]) -> Iterator[str]:
    """Comment lines, folded; a text that begins with a dash gets a hanging indent."""
    for text in texts:
        hanging = "#   " if text.startswith("- ") else "# "
        yield from textwrap.wrap(
            printable(text),
            WIDTH,
            initial_indent="# ",
            subsequent_indent=hanging,
            break_on_hyphens=False,
            break_long_words=False,
        )


def _scalar(value: Scalar) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _MEANT_OTHERWISE:
        return value
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return mantissa + ("" if "." in mantissa else ".0") + e + exponent
    return printable(json.dumps(value, ensure_ascii=False))  # YAML has JSON's escapes, and Python's
