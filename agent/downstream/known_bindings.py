"""The last known bindings of federated exchanges; reads and events may overtake each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.core.model import Binding

Federated = tuple[str, str]
"""A vhost, and an exchange in it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One binding that was added or removed."""

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
        self._changes: list[tuple[int, Change]] = []

    def ask(self, sources: Iterable[Federated] = ()) -> int:
        """Gives a reading of these exchanges its number; `learn` or `forget` has to follow."""
        self._now += 1
        self._asking[self._now] = frozenset(sources)
        return self._now

    @property
    def asked(self) -> frozenset[Federated]:
        """The exchanges that are being read: what changes now may not be in the answer."""
        return frozenset[Federated]().union(*self._asking.values())

    def learn(
        self, number: int, found: Mapping[Federated, Iterable[Binding]]
    ) -> Mapping[Federated, frozenset[Binding]]:
        """Applies the result of a read and returns the current bindings, including those from later reads."""
        for source, bindings in found.items():
            if number > self._asked_at.get(source, 0):
                self._asked_at[source] = number
                self._known[source] = frozenset(bindings)
                for at, change in self._changes:
                    if at >= number and change.source == source:
                        self._apply(change)
        self.forget(number)
        return {source: self._known[source] for source in found}

    def of(self, source: Federated) -> frozenset[Binding] | None:
        """The last known bindings; None if they were never read."""
        return self._known.get(source)

    def forget(self, number: int) -> None:
        """The reading failed, or is through: changes that nobody's answer may lack are kept no longer."""
        self._asking.pop(number, None)
        oldest = min(self._asking, default=self._now + 1)
        self._changes = [(at, change) for at, change in self._changes if at >= oldest]

    def change(self, changes: Iterable[Change]) -> Mapping[Federated, frozenset[Binding]]:
        """Applies changes in this order for exchanges whose bindings are known; returns all bindings of these."""
        changed: dict[Federated, frozenset[Binding]] = {}
        for change in changes:
            if self._asking:
                self._changes.append((self._now, change))
            if change.source in self._known:
                self._apply(change)
                changed[change.source] = self._known[change.source]
        return changed

    def _apply(self, change: Change) -> None:
        known = self._known[change.source]
        self._known[change.source] = known - {change.binding} if change.is_gone else known | {change.binding}
