"""The objects of a cluster to copy: those that an operator's patterns choose, and what hangs on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from agent.core.migration.objects import (
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    is_brokers_own,
    is_everywhere,
    is_of_federation,
    vhost_key,
)
from agent.core.rules.patterns import TOO_SLOW, TRIES, Pattern
from agent.errors import ConfigurationError, Place, Problem


class MovedBy(StrEnum):
    """The way in which the messages of a queue move."""

    SHOVEL = "shovel"
    QUEUE_LINK = "queue-link"


@dataclass(frozen=True, slots=True)
class ObjectChoice:
    """Objects by a pattern of the migration file, and of queues how they move."""

    pattern: Pattern
    place: Place
    moved_by: MovedBy = MovedBy.SHOVEL
    to_quorum: bool = False
    """Mirrored classic queues become quorum queues."""

    def __str__(self) -> str:
        return f"{self.pattern.text!r} ({self.moved_by})"


@dataclass(frozen=True, slots=True)
class VhostSelection:
    """The choices of what moves of one vhost; the first one that matches counts."""

    place: Place
    choices: Mapping[ObjectKind, Sequence[ObjectChoice]]


ChosenObjects: TypeAlias = Mapping[ObjectKey, ObjectChoice | None]
"""The objects to copy of a cluster, with the choice that matched each; vhosts and bindings come with the others."""
CHOSEN_KINDS: Final = (ObjectKind.POLICY, ObjectKind.EXCHANGE, ObjectKind.QUEUE)


def everything(place: Place) -> VhostSelection:
    return VhostSelection(place, dict.fromkeys(CHOSEN_KINDS, (ObjectChoice(Pattern(".*"), place),)))


def choose(source: ClusterObjects, selection: Mapping[str, VhostSelection]) -> ChosenObjects:
    """Also what can't be read. Raises ConfigurationError for a queue that would move in two ways, a vhost that isn't
    there, and a pattern that takes too long."""
    problems = [
        Problem(each.place, f"the source has no vhost {vhost!r}")
        for vhost, each in selection.items()
        if vhost_key(vhost) not in source.objects
    ]
    every = [key for key in (*source.objects, *source.unread) if key.vhost in selection]
    found: dict[ObjectKey, ObjectChoice | None] = {key: None for key in every if key.kind is ObjectKind.VHOST}
    for key in every:
        is_left = is_brokers_own(key) or is_of_federation(key, source.objects)
        if key.kind in CHOSEN_KINDS and not is_left:
            choice = _choice(key, selection[key.vhost].choices[key.kind], problems)
            found.update({} if choice is None else {key: choice})
    if problems:
        raise ConfigurationError(problems)
    bindings = [key for key in every if key.kind is ObjectKind.BINDING]
    ended = [key for key in bindings if all(each in found or is_everywhere(each) for each in key.ends)]
    return {**found, **dict.fromkeys(ended)}


def _choice(key: ObjectKey, choices: Sequence[ObjectChoice], problems: list[Problem]) -> ObjectChoice | None:
    """The first that matches; all others have to agree with it about how."""
    matching = [choice for choice in choices if _is_matched(key.name, choice)]
    for choice in matching[1:]:
        first, place = matching[0], choice.place
        if choice.moved_by is not first.moved_by and not any(each.place == place for each in problems):
            message = f"{key} is matched by {first} and by {choice}: together they lose its order; let one match it"
            problems.append(Problem(place, message))
    return matching[0] if matching else None


def _is_matched(name: str, choice: ObjectChoice) -> bool:
    # On a busy machine a pattern that isn't slow may take too long, too.
    found = next((found for _ in range(TRIES) if (found := choice.pattern.matches(name)) is not None), None)
    if found is None:
        raise ConfigurationError([Problem(choice.place, f"pattern {choice.pattern.text!r}: {TOO_SLOW}")])
    return found
