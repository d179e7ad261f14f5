"""What goes wrong after a copy unless it is known before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from agent.core.migration.objects import (
    SERVER_NAMED,
    Body,
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    exchange_key,
    type_of,
    vhost_key,
)
from agent.core.migration.releases import DELAYED, Objection, ObjectionKind, changed_arguments
from agent.core.migration.selection import ChosenObjects, is_everywhere
from agent.core.text.quantities import listed

_OF_POLICIES: Final = ("alternate-exchange", "dead-letter-exchange")
_OF_ARGUMENTS: Final = ("alternate-exchange", "x-dead-letter-exchange")
_MOST_NAMED: Final = 5
_COMPONENTS: Final = {
    "federation-upstream": "the agent reads it from its own configuration, or from the broker beside it",
    "federation-upstream-set": "the agent reads it from its own configuration, or from the broker beside it",
    "shovel": "stop it at the source before you define it at the target, or both run",
    "vhost-limits": "set it at the target if it is meant there, too",
    "operator_policy": "set it at the target if it is meant there, too",
}
_ANY_COMPONENT: Final = "set it at the target if it is meant there, too"


def traps(
    source: ClusterObjects, target: ClusterObjects, chosen: ChosenObjects, wanted: Mapping[ObjectKey, Body]
) -> Iterator[Objection]:
    def there(key: ObjectKey) -> bool:
        return key in wanted or key in target.objects or is_everywhere(key)

    vhosts = {key.vhost for key in chosen.keys}
    for key, body in wanted.items():
        yield from _of_object(key, body)
        yield from _of_clients(key, source.objects[key], body)
        for name in _exchanges_named(key, body):
            if not there(exchange_key(key.vhost, name)):
                reason = f"it names the exchange {name!r}, which would be missing at the target: messages are dropped"
                yield _trap(key, reason, "choose that exchange, too, or declare it at the target")
    yield from _left_behind(source, chosen, vhosts)
    yield from _of_connections(source, vhosts)
    yield from _of_vhosts(source, target, vhosts)
    yield from _of_parameters(source, vhosts)


def _trap(key: ObjectKey, reason: str, advice: str) -> Objection:
    return Objection(ObjectionKind.TRAP, key, reason, advice)


def _of_object(key: ObjectKey, body: Body) -> Iterator[Objection]:
    if key.kind is ObjectKind.EXCHANGE and body["type"] == DELAYED:
        reason = "messages that it delays can't be taken out of it"
        yield _trap(key, reason, "publish to the target before you switch off, and wait for the longest delay")
    if key.kind is ObjectKind.QUEUE and type_of(body) == "stream":
        reason = "consumers of a stream keep their offsets at the source, and they mean nothing at the target"
        yield _trap(key, reason, "let consumers begin at a time (x-stream-offset) that is before the move")


def _of_clients(key: ObjectKey, before: Body, after: Body) -> Iterator[Objection]:
    names = changed_arguments(before, after) if key.kind in {ObjectKind.QUEUE, ObjectKind.EXCHANGE} else ()
    if names:
        reason = f"copied with other arguments ({', '.join(names)}): clients that declare it as before get 406"
        yield _trap(key, reason, "change what they declare before they connect to the target")


def _exchanges_named(key: ObjectKey, body: Body) -> Iterator[str]:
    """Those that it sends to by itself; the default exchange is everywhere."""
    section = body.get("definition") if key.kind is ObjectKind.POLICY else body.get("arguments")
    if section is None or key.kind is ObjectKind.BINDING:
        return
    for name in _OF_POLICIES if key.kind is ObjectKind.POLICY else _OF_ARGUMENTS:
        named = section.get(name)
        if isinstance(named, str):
            yield named


def _left_behind(source: ClusterObjects, chosen: ChosenObjects, vhosts: set[str]) -> Iterator[Objection]:
    for key in source.objects:
        if key.kind is not ObjectKind.BINDING or key.vhost not in vhosts or not key.name or key in chosen.keys:
            continue
        exchange, destination = key.ends
        is_from, is_to = exchange in chosen.keys or is_everywhere(exchange), destination in chosen.keys
        if is_to:
            reason = f"the exchange {key.name!r} stays behind: what it routes here comes by the source only"
            yield _trap(destination, reason, "choose that exchange, too")
        elif is_from and exchange in chosen.keys and not _is_elsewhere(destination, source):
            reason = f"the {destination.kind} {key.destination!r}, which it routes to, stays behind"
            yield _trap(exchange, reason, "choose it, too, or messages for it are dropped at the target")


def _is_elsewhere(destination: ObjectKey, source: ClusterObjects) -> bool:
    """True for queues that their clients declare at the target again."""
    return destination in source.exclusive or destination.name.startswith(SERVER_NAMED)


def _of_connections(source: ClusterObjects, vhosts: set[str]) -> Iterator[Objection]:
    named = (key for key in source.objects if key.kind is ObjectKind.QUEUE and key.name.startswith(SERVER_NAMED))
    for key in chain(sorted(source.exclusive, key=str), named):
        if key.vhost in vhosts:
            reason = "exclusive and server-named queues aren't copied, nor are their messages"
            yield _trap(key, reason, "their clients declare them again once they connect to the target")


def _of_vhosts(source: ClusterObjects, target: ClusterObjects, vhosts: set[str]) -> Iterator[Objection]:
    for vhost in sorted(vhosts):
        key = vhost_key(vhost)
        there = target.objects.get(key)
        ours = source.objects[key].get("default_queue_type", "classic")
        theirs = ours if there is None else there.get("default_queue_type", "classic")
        if ours != theirs:
            reason = f"the default queue type is {ours} at the source and {theirs} at the target"
            yield _trap(key, reason, "let clients declare x-queue-type, or they get 406 for queues that are copied")


def _of_parameters(source: ClusterObjects, vhosts: set[str]) -> Iterator[Objection]:
    names: dict[tuple[str, str], list[str]] = {}
    for vhost, component, name in source.parameters:
        if vhost in vhosts:
            names.setdefault((vhost, component), []).append(repr(name))
    for (vhost, component), found in names.items():
        reason = f"parameters of component {component!r} aren't copied: {listed(found, _MOST_NAMED)}"
        yield _trap(vhost_key(vhost), reason, _COMPONENTS.get(component, _ANY_COMPONENT))
