"""The things that go wrong after a copy unless they are known before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from agent.core.migration.objects import (
    Body,
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Objects,
    exchange_key,
    is_brokers_own,
    is_everywhere,
    is_of_federation,
    policy_key,
    queue_key,
    vhost_key,
)
from agent.core.migration.releases import Objection, ObjectionKind
from agent.core.migration.selection import ChosenObjects
from agent.core.text import listed

PolicyNames = Mapping[ObjectKey, str | None]
"""The policy in force, None where that isn't known, by queue and exchange."""
_MOST_NAMED: Final = 5
_OF_AGENTS: Final = "the agent reads it from its own configuration, or from the broker beside it"
_COMPONENTS: Final = {
    "federation-upstream": _OF_AGENTS,
    "federation-upstream-set": _OF_AGENTS,
    "shovel": "stop it at the source before you define it at the target, or both run",
}
_ANY_COMPONENT: Final = "set it at the target if it is meant there, too"
_ONLY_BROKERS: Final = "only brokers make it: configure the target so that it has it, and bind it there"
_LEFT_OUT: Final = {
    True: (
        "queues of federation links and of quarantine aren't copied, nor are their messages",
        "let the links drain theirs, and replay or drop what is in quarantine, before you switch off",
    ),
    False: (
        "exclusive and server-named queues aren't copied, nor are their messages",
        "their clients declare them again once they connect to the target",
    ),
}


def traps(
    source: ClusterObjects, target: ClusterObjects, chosen: ChosenObjects, wanted: Objects
) -> Iterator[Objection]:
    vhosts = {key.vhost for key in chosen}
    for key, body in wanted.items():
        yield from _of_clients(key, source.objects[key], body)
        for named in _named(key, body):
            if named not in wanted and named not in target.objects and not is_everywhere(named):
                what = f"{named.kind} {named.name!r}"
                reason = f"it names the {what}, which would be missing at the target: messages are dropped"
                yield _trap(key, reason, "choose it, too, or declare it at the target")
    yield from _left_behind(source, chosen, vhosts)
    yield from _left_out(source, vhosts)
    yield from _of_vhosts(source, target, vhosts)
    yield from _of_parameters(source, vhosts)


def _trap(key: ObjectKey, reason: str, advice: str) -> Objection:
    return Objection(ObjectionKind.TRAP, key, reason, advice)


def _of_clients(key: ObjectKey, before: Body, after: Body) -> Iterator[Objection]:
    if before is not after and key.kind in {ObjectKind.QUEUE, ObjectKind.EXCHANGE}:
        old, new = before["arguments"], after["arguments"]
        names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        reason = f"copied with other arguments ({', '.join(names)}): clients that declare it as before get 406"
        yield _trap(key, reason, "change what they declare before they connect to the target")


def _named(key: ObjectKey, body: Body) -> Iterator[ObjectKey]:
    """The exchanges and queues that it sends to by itself."""
    is_policy = key.kind is ObjectKind.POLICY
    section, x = (body["definition"], "") if is_policy else (body.get("arguments", {}), "x-")
    if key.kind is ObjectKind.BINDING:
        return
    exchange, routing_key = section.get(f"{x}dead-letter-exchange"), section.get(f"{x}dead-letter-routing-key")
    for name in (section.get("alternate-exchange"), exchange):
        if isinstance(name, str):
            yield exchange_key(key.vhost, name)
    if exchange == "" and isinstance(routing_key, str):
        yield queue_key(key.vhost, routing_key)


def of_policies(chosen: ChosenObjects, wanted: Objects, before: PolicyNames, after: PolicyNames) -> Iterator[Objection]:
    """Of queues and exchanges whose policy in force would be another one. Of one that alone was in force, and of which
    the target's release leaves nothing, its own objection says so."""
    for key in wanted:
        was, will = before.get(key, ""), after.get(key, "")
        if was is None or will is None:
            reason = "which policy is in force isn't known: a pattern takes too long, or can't be used"
            yield _trap(key, reason, "look at it on both sides after the copy")
        elif was != will:
            of = policy_key(key.vhost, was)
            if will or of in wanted or of not in chosen:
                names = [repr(each) if each else "none" for each in (was, will)]
                reason = f"policy {names[0]} is in force at the source, and {names[1]} would be at the target"
                yield _trap(key, reason, "give the target a policy for it that does what it needs there")


def _left_behind(source: ClusterObjects, chosen: ChosenObjects, vhosts: set[str]) -> Iterator[Objection]:
    for key in source.objects:
        if key.kind is not ObjectKind.BINDING or key.vhost not in vhosts or key in chosen:
            continue
        exchange, destination = key.ends
        if destination in chosen and not is_of_federation(exchange, source.objects):
            reason = f"the exchange {key.name!r} stays behind: what it routes here comes by the source only"
            advice = _ONLY_BROKERS if is_brokers_own(exchange) else "choose that exchange, too"
            yield _trap(destination, reason, advice)
        elif exchange in chosen and not (
            _is_passing(destination, source) or is_of_federation(destination, source.objects)
        ):
            reason = f"the {destination.kind} {key.destination!r}, which it routes to, stays behind"
            yield _trap(exchange, reason, "choose it, too, or messages for it are dropped at the target")


def _is_passing(key: ObjectKey, source: ClusterObjects) -> bool:
    """True for queues that their clients declare at the target again."""
    return key.kind is ObjectKind.QUEUE and (key in source.passing or is_brokers_own(key))


def _left_out(source: ClusterObjects, vhosts: set[str]) -> Iterator[Objection]:
    for key in (*sorted(source.passing, key=str), *source.objects):
        is_federations = is_of_federation(key, source.objects)
        if key.vhost in vhosts and key.kind is ObjectKind.QUEUE and (is_federations or _is_passing(key, source)):
            yield _trap(key, *_LEFT_OUT[is_federations])


def _of_vhosts(source: ClusterObjects, target: ClusterObjects, vhosts: set[str]) -> Iterator[Objection]:
    for vhost in sorted(vhosts):
        key = vhost_key(vhost)
        ours = source.objects[key]["default_queue_type"]
        theirs = target.objects.get(key, source.objects[key])["default_queue_type"]
        if ours != theirs:
            reason = f"the default queue type is {ours} at the source and {theirs} at the target"
            yield _trap(key, reason, "let clients declare x-queue-type, or they get 406 for queues that are copied")


def _of_parameters(source: ClusterObjects, vhosts: set[str]) -> Iterator[Objection]:
    if source.parameters is None:
        for vhost in sorted(vhosts):
            yield _trap(vhost_key(vhost), "its parameters aren't copied, and are too many to be read", _ANY_COMPONENT)
    names: dict[tuple[str, str], list[str]] = {}
    for vhost, component, name in source.parameters or ():
        if vhost in vhosts:
            names.setdefault((vhost, component), []).append(repr(name))
    for (vhost, component), found in names.items():
        reason = f"parameters of component {component!r} aren't copied: {listed(found, _MOST_NAMED)}"
        yield _trap(vhost_key(vhost), reason, _COMPONENTS.get(component, _ANY_COMPONENT))
