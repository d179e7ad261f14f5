"""Exchanges and bindings, and where a message goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from agent.core.fields import Table

DEFAULT: Final = ""
TYPES: Final = frozenset({"direct", "fanout", "topic"})
UPSTREAM: Final = "x-federation-upstream"  # of the federation plugin; it routes as a fanout does
PREDECLARED: Final = (("amq.direct", "direct"), ("amq.fanout", "fanout"), ("amq.topic", "topic"))


@dataclass(slots=True)
class Exchange:
    name: str
    type: str
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """`to_queue`: the destination is a queue."""

    source: str
    destination: str
    to_queue: bool
    key: str
    arguments: Table = ()


@dataclass
class Routing:
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    bindings: dict[Binding, None] = field(default_factory=dict)
    on_unbound: Callable[[Binding], None] = lambda binding: None
    on_deleted: Callable[[str], None] = lambda name: None

    def __post_init__(self) -> None:
        for name, kind in PREDECLARED:
            self.exchanges[name] = Exchange(name, kind, durable=True)

    def bound_from(self, source: str) -> Iterator[Binding]:
        return (each for each in self.bindings if each.source == source)

    def route(self, exchange: str, key: str) -> list[str]:
        """The names of queues, each once."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        left = [exchange]
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            for binding in self.bound_from(name):
                if matches(self.exchanges[name].type, binding.key, key):
                    if binding.to_queue:
                        found[binding.destination] = None
                    else:
                        left.append(binding.destination)
        return list(found)

    def unbind(self, binding: Binding) -> None:
        """An auto-delete exchange goes with the last binding from it."""
        if self.bindings.pop(binding, _MISSING) is _MISSING:
            return
        self.on_unbound(binding)
        source = self.exchanges.get(binding.source)
        if source is not None and source.auto_delete and next(self.bound_from(source.name), None) is None:
            self.delete(source.name)

    def delete(self, name: str) -> None:
        if self.exchanges.pop(name, None) is not None:
            self.on_deleted(name)
        self.forget(name, is_queue=False)

    def forget(self, name: str, *, is_queue: bool) -> None:
        """Bindings of what was deleted go with it."""
        for binding in tuple(self.bindings):
            is_from = not is_queue and binding.source == name
            is_to = binding.destination == name and binding.to_queue is is_queue
            if is_from or is_to:
                self.unbind(binding)


_MISSING: Final = object()


def matches(kind: str, pattern: str, key: str) -> bool:
    match kind:
        case "direct":
            return pattern == key
        case "topic":
            return pattern == "#" or _matches_words(pattern.split("."), key.split("."))
        case _:
            return True


def _matches_words(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_matches_words(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in {"*", words[0]} and _matches_words(pattern[1:], words[1:])
