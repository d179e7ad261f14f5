"""What of a cluster is to be copied: the objects that an operator's patterns choose, and what hangs on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agent.core.migration.objects import (
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    is_brokers_own,
    is_of_federation,
    vhost_key,
)
from agent.core.rules.patterns import TOO_SLOW, TRIES, Pattern
from agent.errors import ConfigurationError, Place, Problem


class MovedBy(StrEnum):
    """How the messages of a queue move."""

    SHOVEL = "shovel"
    QUEUE_LINK = "queue-link"


@dataclass(frozen=True, slots=True)
class PlacedPattern:
    """A pattern of the migration file, and its place there."""

    pattern: Pattern
    place: Place


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """Queues by a pattern, and how they move."""

    pattern: PlacedPattern
    moved_by: MovedBy = MovedBy.SHOVEL
    to_quorum: bool = False
    """Mirrored classic queues become quorum queues."""

    def __str__(self) -> str:
        return f"{self.pattern.pattern.text!r} ({self.moved_by})"


@dataclass(frozen=True, slots=True)
class VhostSelection:
    """What moves of one vhost."""

    place: Place
    queues: tuple[QueueChoice, ...]
    exchanges: tuple[PlacedPattern, ...]
    policies: tuple[PlacedPattern, ...]


@dataclass(frozen=True, slots=True)
class ChosenObjects:
    """What is to be copied of a cluster; `queues` has the choice that each queue was matched by."""

    keys: frozenset[ObjectKey] = field(repr=False)
    queues: Mapping[ObjectKey, QueueChoice] = field(repr=False)


_ANYTHING: Final = ".*"


def everything(place: Place) -> VhostSelection:
    every = PlacedPattern(Pattern(_ANYTHING), place)
    return VhostSelection(place, (QueueChoice(every),), (every,), (every,))


def choose(source: ClusterObjects, selection: Mapping[str, VhostSelection]) -> ChosenObjects:
    """Raises ConfigurationError for a queue that would move in two ways, a vhost that isn't there, and a pattern that
    takes too long."""
    problems = [
        Problem(each.place, f"the source has no vhost {vhost!r}")
        for vhost, each in selection.items()
        if vhost_key(vhost) not in source.objects
    ]
    queues: dict[ObjectKey, QueueChoice] = {}
    keys: set[ObjectKey] = set()
    for key, body in source.objects.items():
        of_vhost = selection.get(key.vhost)
        if of_vhost is None or key.kind is ObjectKind.BINDING:
            continue
        if key.kind is ObjectKind.VHOST:
            keys.add(key)
        elif key.kind is ObjectKind.POLICY:
            keys.update([key] if _is_matched(key.name, of_vhost.policies) else [])
        elif is_brokers_own(key.name) or is_of_federation(key.name, body):
            continue
        elif key.kind is ObjectKind.EXCHANGE:
            keys.update([key] if _is_matched(key.name, of_vhost.exchanges) else [])
        else:
            queues.update((key, choice) for choice in _choice(key, of_vhost.queues, problems))
    if problems:
        raise ConfigurationError(problems)
    keys |= queues.keys()
    keys.update(_bindings(source, keys))
    return ChosenObjects(frozenset(keys), queues)


def _choice(key: ObjectKey, choices: Sequence[QueueChoice], problems: list[Problem]) -> Iterator[QueueChoice]:
    """The first that matches; all others have to agree with it about how."""
    first: QueueChoice | None = None
    for choice in choices:
        if not _is_matched(key.name, (choice.pattern,)):
            continue
        if first is None:
            first = choice
            yield choice
        elif choice.moved_by is not first.moved_by:
            place = choice.pattern.place
            message = f"{key} is matched by {first} and by {choice}: together they lose its order; let one match it"
            problems += [] if any(each.place == place for each in problems) else [Problem(place, message)]


def _is_matched(name: str, patterns: Sequence[PlacedPattern]) -> bool:
    for each in patterns:
        # On a busy machine a pattern that isn't slow may take too long, too.
        found = next((found for _ in range(TRIES) if (found := each.pattern.matches(name)) is not None), None)
        if found is None:
            raise ConfigurationError([Problem(each.place, f"pattern {each.pattern.text!r}: {TOO_SLOW}")])
        if found:
            return True
    return False


def _bindings(source: ClusterObjects, keys: set[ObjectKey]) -> Iterator[ObjectKey]:
    """Those with both ends there: chosen, or an exchange that every broker has."""
    for key in source.objects:
        is_chosen = key.kind is ObjectKind.BINDING and vhost_key(key.vhost) in keys
        if is_chosen and all(each in keys or is_everywhere(each) for each in key.ends):
            yield key


def is_everywhere(key: ObjectKey) -> bool:
    """True for exchanges that each vhost has from its beginning."""
    return key.kind is ObjectKind.EXCHANGE and key.name in _OF_EACH_VHOST


_OF_EACH_VHOST: Final = frozenset(
    ("", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic", "amq.rabbitmq.trace")
)
