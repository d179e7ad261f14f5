"""What becomes of definitions at another release: a row for each that it refuses or ignores and others take, with
what to do; and traps, which go wrong after a copy unless they are known before.

Rows predict. Copies try everything and believe the broker; they go by rows only for what they leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from agent.core.migration.objects import (
    NEWEST,
    Body,
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Objects,
    Release,
    exchange_key,
    is_brokers_own,
    is_everywhere,
    is_of_federation,
    policy_key,
    queue_key,
    release_text,
    type_of,
    vhost_key,
)
from agent.core.migration.selection import ChosenObjects
from agent.core.rules.declarations import TYPE
from agent.core.text import listed


class ObjectionKind(StrEnum):
    """The fate of an object at the target."""

    REFUSED = "refused"
    """The target refuses it as it is at the source."""
    DIFFERS = "differs"
    """The target has it already, and not as it would be copied."""
    IGNORED = "ignored"
    """The target takes it, and it has no effect there."""
    TRAP = "trap"
    """It is taken, and something else goes wrong unless you know."""


@dataclass(frozen=True, slots=True)
class Objection:
    """One thing to know about one object. Reason and advice are the same text wherever the same is meant."""

    verdict: ObjectionKind
    key: ObjectKey
    reason: str
    advice: str


_EVER: Final[Release] = (3, 10, 0)
_3_12: Final[Release] = (3, 12, 0)
_4_0: Final[Release] = (4, 0, 0)
_4_3: Final[Release] = (4, 3, 0)
_NEVER: Final[Release] = (NEWEST,)
KNOWN: Final[tuple[Release, Release]] = (_EVER, (4, 3, NEWEST))
_ARGUMENTS: Final = "arguments"
_DEFINITION: Final = "definition"
_MOST_PATTERN: Final = 1024
_MOST_WILDCARDS: Final = 2
_POLICY, _QUEUE = ObjectKind.POLICY, ObjectKind.QUEUE
_REFUSED, _IGNORED, _TRAP = ObjectionKind.REFUSED, ObjectionKind.IGNORED, ObjectionKind.TRAP


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """Holds for releases from `since` on and before `before`, and for objects that have one of `names` among their
    arguments or settings, with `value` and of a queue type in `types` if these are given; or for which `applies`. Of
    what is refused, copies leave out `names`."""

    kind: ObjectKind
    verdict: ObjectionKind
    reason: str
    advice: str
    names: tuple[str, ...] = ()
    since: Release = _EVER
    before: Release = _NEVER
    value: object = None
    types: tuple[str, ...] = ()
    applies: Callable[[Body], bool] | None = None

    def holds(self, body: Body) -> bool:
        if self.applies is not None:
            return self.applies(body)
        there = body[_section(self.kind)]
        has = any(name in there and (self.value is None or there[name] == self.value) for name in self.names)
        return has and (not self.types or type_of(body) in self.types)


def _section(kind: ObjectKind) -> str:
    return _DEFINITION if kind is _POLICY else _ARGUMENTS


_HA: Final = (
    "ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure",
)  # fmt: skip
MIRRORING: Final = _HA[0]
_DELAYED: Final = "x-delayed-message"
_TYPED_QUEUES: Final = ("classic_queues", "quorum_queues", "streams")
_LAZY: Final = "since 3.12 all queues are like lazy ones"
_NONE: Final = "nothing to do"
_LEFT_OUT: Final = "it is copied without; clients that declare it with that are refused: change them"
_VERSION, _LEADER, _TIMEOUT = "x-queue-version", "x-queue-leader-locator", "x-consumer-timeout"

RULES: Final = (
    ReleaseRule(_POLICY, _REFUSED, "ha-*: RabbitMQ 4.0 has no mirrored queues",
        "it is copied without; 'convert: quorum' is for the queues that have to survive a node", _HA, _4_0),
    ReleaseRule(_POLICY, _REFUSED, "queue-master-locator isn't permitted",
        "it is copied without; queue-leader-locator does the same", ("queue-master-locator",), _4_3),
    ReleaseRule(_POLICY, _IGNORED, f"queue-mode: {_LAZY}", _NONE, ("queue-mode",), _3_12),
    ReleaseRule(_POLICY, _IGNORED, "queue-version: 1 is gone with 4.0", f"{_NONE}: queues are of version 2",
        ("queue-version",), _4_0, value=1),
    ReleaseRule(_POLICY, _REFUSED, "apply-to: releases before 3.12 know exchanges, queues and all",
        "write 'apply-to: queues' at the target, with a pattern that only such queues match", before=_3_12,
        applies=lambda body: body["apply-to"] in _TYPED_QUEUES),
    ReleaseRule(_POLICY, _REFUSED, "delivery-limit: before 4.0 no limit is none at all, and not -1",
        "it is copied without", ("delivery-limit",), before=_4_0, value=-1),
    ReleaseRule(_POLICY, _REFUSED, "the pattern is longer than 1024 bytes", "write several policies", since=_4_3,
        applies=lambda body: len(body["pattern"].encode(errors="replace")) > _MOST_PATTERN),
    ReleaseRule(_QUEUE, _REFUSED, "x-queue-version: 1 is gone with 4.0", _LEFT_OUT, (_VERSION,), _4_3, value=1),
    ReleaseRule(_QUEUE, _IGNORED, "x-queue-version: 1 is gone with 4.0",
        "4.3 refuses it: change the clients that declare it", (_VERSION,), _4_0, _4_3, value=1),
    ReleaseRule(_QUEUE, _REFUSED, "x-queue-master-locator isn't permitted", _LEFT_OUT, ("x-queue-master-locator",),
        _4_3),
    ReleaseRule(_QUEUE, _REFUSED, "x-consumer-timeout: only quorum queues have it", _LEFT_OUT, (_TIMEOUT,), _4_3,
        types=("classic", "stream")),
    ReleaseRule(_QUEUE, _REFUSED, "x-queue-leader-locator: classic queues of this release have none", _LEFT_OUT,
        (_LEADER,), before=_3_12, types=("classic",)),
    ReleaseRule(_QUEUE, _IGNORED, f"x-queue-mode: {_LAZY}", _NONE, ("x-queue-mode",), _3_12),
    ReleaseRule(_QUEUE, _IGNORED, "x-ha-policy: since 3.0 policies mirror queues", _NONE, ("x-ha-policy",)),
    ReleaseRule(_QUEUE, _TRAP,
        "transient queues that aren't exclusive are deprecated: 4.3 takes them unless its configuration has "
        "deprecated_features.permit.transient_nonexcl_queues = false",
        "let clients declare them durable, or exclusive; --rehearse shows whether this target takes them", since=_4_3,
        applies=lambda body: not body["durable"]),
    ReleaseRule(_QUEUE, _TRAP,
        "no x-delivery-limit: since 4.0 a quorum queue drops, or dead-letters, what came back 20 times",
        "set delivery-limit by a policy, -1 for none", since=_4_0,
        applies=lambda body: type_of(body) == "quorum" and "x-delivery-limit" not in body[_ARGUMENTS]),
    ReleaseRule(_QUEUE, _TRAP, "x-expires: the target deletes it if nobody uses it for that long",
        "let its clients connect there before, or 'copy --follow' makes it again", ("x-expires",)),
    ReleaseRule(_QUEUE, _TRAP,
        "consumers of a stream keep their offsets at the source, and they mean nothing at the target",
        "let consumers begin at a time (x-stream-offset) that is before the move",
        applies=lambda body: type_of(body) == "stream"),
    ReleaseRule(ObjectKind.EXCHANGE, _TRAP, "messages that it delays can't be taken out of it",
        "publish to the target before you switch off, and wait for the longest delay",
        applies=lambda body: body["type"] == _DELAYED),
    ReleaseRule(ObjectKind.BINDING, _REFUSED, "a topic exchange takes keys with two # at most",
        "bind with fewer, two of them in a row mean the same as one", since=(4, 3, 5),
        applies=lambda body: body["routing_key"].split(".").count("#") > _MOST_WILDCARDS),
)  # fmt: skip
"""Seen on 3.10.8, 4.0.5 and 4.3.6, over the HTTP API."""

_TYPES: Final[Mapping[str, tuple[Release, str]]] = {
    **dict.fromkeys(("direct", "fanout", "topic", "headers"), (_EVER, "")),
    "x-local-random": (_4_0, ""),
    "x-modulus-hash": (_4_3, "rabbitmq_sharding"),
    _DELAYED: (_NEVER, "rabbitmq_delayed_message_exchange"),
    "x-consistent-hash": (_NEVER, "rabbitmq_consistent_hash_exchange"),
    "x-random": (_NEVER, "rabbitmq_random_exchange"),
    "x-recent-history": (_NEVER, "rabbitmq_recent_history_exchange"),
    "x-jms-topic": (_NEVER, "rabbitmq_jms_topic_exchange"),
    "x-federation-upstream": (_NEVER, "rabbitmq_federation"),
}
"""Types of exchanges: since when brokers have them without a plugin, and the plugin."""
_SETTINGS: Final[Mapping[str, Release]] = {
    **dict.fromkeys(
        (
            *_HA, "queue-mode", "queue-version", "queue-master-locator", "queue-leader-locator", "expires",
            "message-ttl", "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "delivery-limit",
            "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes", "overflow",
            "alternate-exchange", "max-age", "stream-max-segment-size-bytes", "initial-cluster-size",
        ),
        _EVER,
    ),
    "consumer-timeout": _3_12,
    **dict.fromkeys(("stream-filter-size-bytes", "target-group-size"), (3, 13, 0)),
    **dict.fromkeys(
        ("consumer-disconnected-timeout", "delayed-retry-type", "delayed-retry-min", "delayed-retry-max"), _4_3
    ),
}  # fmt: skip
"""The keys of policies that releases know without a plugin."""
_NO_QUORUM: Final = {
    "x-max-priority": "quorum queues have none: with 4.0 two priorities without declaring any, before that none",
    "x-queue-mode": "quorum queues have none, and keep messages on disk anyway",
    "x-queue-version": "quorum queues have none",
    "x-queue-master-locator": "quorum queues have x-queue-leader-locator",
}
"""Arguments of classic queues that quorum queues refuse."""
_KEEPS_ITS_TYPE: Final = "it stays a classic queue, on one node: let clients declare it durable, and not auto-delete"


def adapted(key: ObjectKey, body: Body, target: Release, types: frozenset[str] | None) -> tuple[Body, list[Objection]]:
    """The body as it is copied to a release, and what that release makes of the object as it is. `types` are the
    target's exchange types, if they are known."""
    objections: list[Objection] = []
    for rule in RULES:
        if rule.kind is key.kind and rule.since <= target < rule.before and rule.holds(body):
            objections.append(Objection(rule.verdict, key, rule.reason, rule.advice))
            if rule.verdict is _REFUSED and rule.names:
                section = _section(key.kind)
                kept = {name: value for name, value in body[section].items() if name not in rule.names}
                body = {**body, section: kept}
    if key.kind is ObjectKind.EXCHANGE:
        objections += _of_type(key, body["type"], target, types)
    if key.kind is _POLICY:
        objections += _of_settings(key, body["definition"], target)
    return body, objections


def _of_type(key: ObjectKey, kind: str, target: Release, types: frozenset[str] | None) -> Iterator[Objection]:
    since, plugin = _TYPES.get(kind, (_NEVER, ""))
    if kind not in types if types is not None else target < since:
        known = "" if types is not None else " by itself"
        advice = f"enable {plugin or 'the plugin that has it'} at the target"
        yield Objection(_REFUSED, key, f"the target has no exchanges of type {kind!r}{known}", advice)


def _of_settings(key: ObjectKey, definition: Mapping[str, Any], target: Release) -> Iterator[Objection]:
    unknown = sorted(name for name in definition if _SETTINGS.get(name, _NEVER) > target)
    if unknown:
        reason = f"RabbitMQ {release_text(target)} doesn't know {', '.join(map(repr, unknown))} without a plugin"
        yield Objection(_REFUSED, key, reason, "enable the plugin at the target; the agent federates without one")


def as_quorum(key: ObjectKey, body: Body) -> tuple[Body, list[Objection]]:
    """A mirrored queue as a quorum queue, and what that changes."""
    if not body["durable"] or body["auto_delete"]:
        return body, [Objection(_TRAP, key, "only durable queues can be quorum queues", _KEEPS_ITS_TYPE)]
    arguments = body[_ARGUMENTS]
    lost = [name for name in _NO_QUORUM if name in arguments]
    objections = [Objection(_TRAP, key, f"{name}: {_NO_QUORUM[name]}", _LEFT_OUT) for name in lost]
    if arguments.get("x-overflow") == "reject-publish-dlx":
        reason = "x-overflow: reject-publish-dlx means nothing to quorum queues, which drop the oldest instead"
        objections.append(Objection(_TRAP, key, reason, "let clients declare it with reject-publish"))
    kept = {name: value for name, value in arguments.items() if name not in _NO_QUORUM}
    return {**body, _ARGUMENTS: {**kept, TYPE: "quorum"}}, objections


PolicyNames = Mapping[ObjectKey, str | None]
"""The policy in force, None where that isn't known, by queue and exchange."""
_OF_AGENTS: Final = "the agent reads it from its own configuration, or from the broker beside it"
_COMPONENTS: Final = {
    "federation-upstream": _OF_AGENTS,
    "federation-upstream-set": _OF_AGENTS,
    "shovel": "stop it at the source before you define it at the target, or both run",
}
_ANY_COMPONENT: Final = "set it at the target if it is meant there, too"
_ONLY_BROKERS: Final = "only brokers make it: configure the target so that it has it, and bind it there"
_NOT_COPIED: Final = {
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
            yield _trap(key, *_NOT_COPIED[is_federations])


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
        reason = f"parameters of component {component!r} aren't copied: {listed(found)}"
        yield _trap(vhost_key(vhost), reason, _COMPONENTS.get(component, _ANY_COMPONENT))
