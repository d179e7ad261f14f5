"""The queues that move, by shovels or by queue links, and the definitions of the ordinary agent that moves them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.core.addresses.uri import AmqpUri
from agent.core.migration.objects import (
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    in_order,
    is_brokers_own,
    is_of_federation,
    type_of,
)
from agent.core.migration.selection import ChosenObjects, MovedBy
from agent.core.model import (
    ApplyTo,
    Choice,
    Definitions,
    Federation,
    LinkSettings,
    Policy,
    QueueDestination,
    QueueSource,
    Shovel,
    ShovelSettings,
    Upstream,
    VhostDefinitions,
)
from agent.core.rules.names import MOVE_TAG
from agent.errors import Place

UPSTREAM: Final = "migration"
PRIORITY: Final = 1_000
"""Of policies: given to an agent that has others, these win."""
_LONGEST: Final = 255  # bytes, of any name
_LONGEST_PATTERN: Final = 1_024  # bytes
_STREAM: Final = "a stream keeps its messages: copy it with a shovel of streams"
_AUTO_DELETE: Final = (
    "an auto-delete queue goes with its last consumer, and with it what waits in it: let clients drain it"
)
_PASSING: Final = "it is exclusive, and ends with its client"
_SERVER_NAMED: Final = "its name is one that only brokers give"
_FEDERATION: Final = "it belongs to links, or is their quarantine"


@dataclass(frozen=True, slots=True)
class QueueMoves:
    """Queues that move, with how. Those `missing` at the destination can't, and some are `left`, with the reasons."""

    queues: Mapping[ObjectKey, MovedBy]
    missing: tuple[ObjectKey, ...]
    left: Mapping[ObjectKey, str]


def moves_of(chosen: ChosenObjects, source: ClusterObjects, target: ClusterObjects, *, back: bool) -> QueueMoves:
    """From the file's source to its target, or `back`. What goes back is what was chosen at the source."""
    origin, destination = (target, source) if back else (source, target)
    queues: dict[ObjectKey, MovedBy] = {}
    missing: list[ObjectKey] = []
    left = _never_chosen(origin, {key.vhost for key in chosen})
    for key in in_order(key for key in chosen if key.kind is ObjectKind.QUEUE):
        choice, reason = chosen[key], _why_left(key, origin, destination)
        if reason is not None:
            left[key] = reason
        elif key not in destination.objects:
            missing.append(key)
        elif choice is not None:
            queues[key] = choice.moved_by
    return QueueMoves(queues, tuple(missing), left)


def _why_left(key: ObjectKey, origin: ClusterObjects, destination: ClusterObjects) -> str | None:
    for each in (origin, destination):
        if key in each.unread:
            return f"in cluster {each.cluster!r} it {each.unread[key]}"
        if key in each.passing:
            return _PASSING
        if key in each.objects and type_of(each.objects[key]) == "stream":
            return _STREAM
    if key not in origin.objects:
        return f"cluster {origin.cluster!r} hasn't got it: nothing comes back"
    return _AUTO_DELETE if origin.objects[key]["auto_delete"] else None


def _never_chosen(origin: ClusterObjects, vhosts: set[str]) -> dict[ObjectKey, str]:
    every = (*origin.passing, *origin.objects, *origin.unread)
    found: dict[ObjectKey, str] = {}
    for key in in_order(key for key in every if key.kind is ObjectKind.QUEUE and key.vhost in vhosts):
        if key in origin.passing:
            found[key] = _PASSING
        elif is_of_federation(key, origin.objects):
            found[key] = _FEDERATION
        elif is_brokers_own(key):
            found[key] = _SERVER_NAMED
    return found


def consumer_tag(destination: str) -> str:
    """Of all consumers of a move to that cluster: by it a move finds one that would bring back what it moves."""
    return _cut(MOVE_TAG + destination)


def group_of(origin: str, vhosts: Iterable[str]) -> str:
    """The agents of one move share its links, and none with an agent that runs already, or with one of other vhosts."""
    return _cut(f"migrate from {origin}: {', '.join(sorted(vhosts))}")


def definitions_of(moves: QueueMoves, uris: tuple[AmqpUri, ...], destination: str, place: Place) -> Definitions:
    """Of an agent beside the destination, which is its cluster's name; `uris` are the origin's. Each queue is there
    once: a shovel and a queue link together would lose its order."""
    names: dict[str, dict[MovedBy, list[str]]] = {}
    for key, how in moves.queues.items():
        names.setdefault(key.vhost, {}).setdefault(how, []).append(key.name)
    tag, found = consumer_tag(destination), {}
    for vhost, by_how in names.items():
        origin = tuple(uri.in_vhost(vhost) for uri in uris)
        beside = (AmqpUri().in_vhost(vhost),)
        shovels = [_shovel(name, origin, beside, tag=tag, place=place) for name in by_how.get(MovedBy.SHOVEL, ())]
        policies = _policies(by_how.get(MovedBy.QUEUE_LINK, ()), place)
        upstream = Upstream(UPSTREAM, origin, place, LinkSettings(consumer_tag=tag))
        found[vhost] = VhostDefinitions(
            upstreams={UPSTREAM: upstream} if policies else {},
            policies={each.name: each for each in policies},
            shovels={each.name: each for each in shovels},
        )
    return Definitions(found)


def _shovel(queue: str, origin: tuple[AmqpUri, ...], beside: tuple[AmqpUri, ...], *, tag: str, place: Place) -> Shovel:
    """Between queues that exist: it declares none."""
    source, destination = QueueSource(queue, is_predeclared=True), QueueDestination(queue, is_predeclared=True)
    settings = ShovelSettings(consumer_tag=tag)
    return Shovel(_shovel_name(queue), origin, beside, place, source, destination, settings)


def _policies(names: Iterable[str], place: Place) -> list[Policy]:
    followed = Federation(Choice.UPSTREAM, UPSTREAM)
    return [
        Policy(f"{UPSTREAM} {number}", pattern, ApplyTo.QUEUES, PRIORITY, followed, place)
        for number, pattern in enumerate(_patterns(names), 1)
    ]


def _patterns(names: Iterable[str]) -> list[str]:
    """Regular expressions that match these names alone, each within brokers' bound."""
    found: list[list[str]] = []
    room = 0
    for name in map(re.escape, names):
        needed = len(name.encode()) + 1
        if needed > room:
            found.append([])
            room = _LONGEST_PATTERN - len(_exactly(()))
        found[-1].append(name)
        room -= needed
    return [_exactly(each) for each in found]


def _exactly(escaped: Iterable[str]) -> str:
    return rf"\A(?:{'|'.join(escaped)})\Z"


def _shovel_name(queue: str) -> str:
    """No other shovel's, and a key of YAML: with a digest where the queue's name is too long, or looks like `${env:…}`,
    which keys may not."""
    name = f"migrate {queue}"
    if len(name.encode()) <= _LONGEST and "${" not in name:
        return name
    return f"migrate ({hashlib.blake2s(queue.encode(), digest_size=16).hexdigest()})"


def _cut(text: str) -> str:
    return text.encode()[:_LONGEST].decode(errors="ignore")
