"""The last known bindings of federated exchanges; reads and events may overtake each other.

Why: docs/decisions/0028-bindings-from-events.md
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from agent.core.model import Binding, Link, LinkKind

Federated = tuple[str, str]
"""A vhost, and an exchange in it."""


def exchanges_of(links: Iterable[Link]) -> frozenset[Federated]:
    """The downstream exchanges of those links that copy bindings."""
    return frozenset((link.vhost, link.name) for link in links if link.kind is LinkKind.EXCHANGE)


@dataclass(frozen=True, slots=True)
class BindingChange:
    """The addition or removal of one binding."""

    source: Federated
    binding: Binding
    is_gone: bool = False


class KnownBindings:
    """A read that started later is newer, and changes since its start may be missing from its result."""

    def __init__(self) -> None:
        self._now = 0
        self._asking: dict[int, frozenset[Federated]] = {}
        self._asked_at: dict[Federated, int] = {}
        self._known: dict[Federated, frozenset[Binding]] = {}
        self._changes: list[tuple[int, BindingChange]] = []

    @contextmanager
    def reading(self, sources: Iterable[Federated] = ()) -> Iterator[int]:
        """Gives a reading of these exchanges its number. Changes are kept for it until it ends, however it ends."""
        self._now += 1
        number = self._now
        self._asking[number] = frozenset(sources)
        try:
            yield number
        finally:
            del self._asking[number]
            oldest = min(self._asking, default=self._now + 1)
            self._changes = [(at, change) for at, change in self._changes if at >= oldest]

    @property
    def asked(self) -> Collection[frozenset[Federated]]:
        """The exchanges that are being read, by reading: later changes may not be in the response."""
        return self._asking.values()

    def learn(
        self, number: int, found: Mapping[Federated, Iterable[Binding]]
    ) -> Mapping[Federated, frozenset[Binding]]:
        """Applies the result of a read and returns the current bindings, including those from later reads."""
        later: dict[Federated, list[BindingChange]] = defaultdict(list)
        for at, change in self._changes:
            if at >= number:
                later[change.source].append(change)
        for source, bindings in found.items():
            if number > self._asked_at.get(source, 0):
                self._asked_at[source] = number
                self._known[source] = frozenset(bindings)
                for change in later.get(source, ()):
                    self._apply(change)
        return {source: self._known[source] for source in found}

    def of(self, source: Federated) -> frozenset[Binding] | None:
        """The last known bindings; None if they were never read."""
        return self._known.get(source)

    def keep(self, sources: frozenset[Federated]) -> None:
        """Forgets the bindings of all other exchanges."""
        for source in self._known.keys() - sources:
            del self._known[source]
            self._asked_at.pop(source, None)

    def change(self, changes: Iterable[BindingChange]) -> Mapping[Federated, frozenset[Binding]]:
        """Applies changes in this order for exchanges whose bindings are known; returns all bindings of these."""
        changed: dict[Federated, frozenset[Binding]] = {}
        for change in changes:
            if self._asking:
                self._changes.append((self._now, change))
            if change.source in self._known:
                self._apply(change)
                changed[change.source] = self._known[change.source]
        return changed

    def _apply(self, change: BindingChange) -> None:
        known = self._known[change.source]
        self._known[change.source] = known - {change.binding} if change.is_gone else known | {change.binding}
