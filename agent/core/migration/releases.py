"""What each release refuses or ignores of definitions that others take: a row for each, with what to do.

Rows predict. Copies try everything and believe the broker; they go by rows only for what they leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from agent.core.migration.objects import NEWEST, Body, ObjectKey, ObjectKind, Release, release_text, type_of
from agent.core.rules.declarations import TYPE


class ObjectionKind(StrEnum):
    """What becomes of an object at the target."""

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
_4_0: Final[Release] = (4, 0, 0)
_4_3: Final[Release] = (4, 3, 0)
_NEVER: Final[Release] = (NEWEST,)
_ARGUMENTS: Final = "arguments"
_DEFINITION: Final = "definition"
_MOST_PATTERN: Final = 1024
_MOST_WILDCARDS: Final = 2


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """Holds for releases from `since` on and before `before`. Copies leave out `left_out` of the section."""

    kind: ObjectKind
    verdict: ObjectionKind
    applies: Callable[[Body], bool]
    reason: str
    advice: str
    since: Release = _EVER
    before: Release = _NEVER
    left_out: frozenset[str] = frozenset()

    @property
    def section(self) -> str:
        return _DEFINITION if self.kind is ObjectKind.POLICY else _ARGUMENTS


def _argument(name: str, *values: object, kind: str = "") -> Callable[[Body], bool]:
    def applies(body: Body) -> bool:
        there = body[_ARGUMENTS]
        return name in there and (not values or there[name] in values) and kind in {"", type_of(body)}

    return applies


def _setting(*names: str, value: object = None) -> Callable[[Body], bool]:
    def applies(body: Body) -> bool:
        there = body[_DEFINITION]
        return any(name in there and value in {None, there[name]} for name in names)

    return applies


_HA: Final = (
    "ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure",
)  # fmt: skip
_TYPED_QUEUES: Final = ("classic_queues", "quorum_queues", "streams")
_LAZY: Final = "since 3.12 all queues are like lazy ones"
_LEFT_OUT: Final = "it is copied without; clients that declare it with that are refused: change them"

RULES: Final = (
    ReleaseRule(
        ObjectKind.POLICY, ObjectionKind.REFUSED, _setting(*_HA), "ha-*: RabbitMQ 4.0 has no mirrored queues",
        "it is copied without; write 'convert: quorum' for the queues that have to survive a node",
        since=_4_0, left_out=frozenset(_HA),
    ),
    ReleaseRule(
        ObjectKind.POLICY, ObjectionKind.REFUSED, _setting("queue-master-locator"),
        "queue-master-locator isn't permitted", "it is copied without; queue-leader-locator does the same",
        since=_4_3, left_out=frozenset({"queue-master-locator"}),
    ),
    ReleaseRule(
        ObjectKind.POLICY, ObjectionKind.IGNORED, _setting("queue-mode"), f"queue-mode: {_LAZY}", "nothing to do",
        since=(3, 12, 0),
    ),
    ReleaseRule(
        ObjectKind.POLICY, ObjectionKind.IGNORED, _setting("queue-version", value=1),
        "queue-version: 1 is gone with 4.0", "nothing to do: queues are of version 2", since=_4_0,
    ),
    ReleaseRule(
        ObjectKind.POLICY, ObjectionKind.REFUSED, lambda body: body["apply-to"] in _TYPED_QUEUES,
        "apply-to: releases before 3.12 know exchanges, queues and all",
        "write 'apply-to: queues' at the target, with a pattern that only such queues match", before=(3, 12, 0),
    ),
    ReleaseRule(
        ObjectKind.POLICY, ObjectionKind.REFUSED,
        lambda body: len(body["pattern"].encode(errors="replace")) > _MOST_PATTERN,
        "the pattern is longer than 1024 bytes", "write several policies", since=_4_3,
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.REFUSED, _argument("x-queue-version", 1), "x-queue-version: 1 is gone with 4.0",
        _LEFT_OUT, since=_4_3, left_out=frozenset({"x-queue-version"}),
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.IGNORED, _argument("x-queue-version", 1), "x-queue-version: 1 is gone with 4.0",
        "4.3 refuses it: change the clients that declare it", since=_4_0, before=_4_3,
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.REFUSED, _argument("x-queue-master-locator"),
        "x-queue-master-locator isn't permitted", _LEFT_OUT, since=_4_3, left_out=frozenset({"x-queue-master-locator"}),
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.REFUSED, _argument("x-consumer-timeout", kind="classic"),
        "x-consumer-timeout: classic queues have none", _LEFT_OUT, since=_4_3,
        left_out=frozenset({"x-consumer-timeout"}),
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.REFUSED, _argument("x-consumer-timeout", kind="stream"),
        "x-consumer-timeout: streams have none", _LEFT_OUT, since=_4_3, left_out=frozenset({"x-consumer-timeout"}),
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.REFUSED, _argument("x-queue-leader-locator", kind="classic"),
        "x-queue-leader-locator: classic queues of this release have none", _LEFT_OUT, before=(3, 12, 0),
        left_out=frozenset({"x-queue-leader-locator"}),
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.IGNORED, _argument("x-queue-mode"), f"x-queue-mode: {_LAZY}", "nothing to do",
        since=(3, 12, 0),
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.IGNORED, _argument("x-ha-policy"),
        "x-ha-policy: since 3.0 policies mirror queues", "nothing to do",
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.TRAP, lambda body: not body["durable"],
        "transient queues that aren't exclusive are deprecated: 4.3 takes them unless its configuration has "
        "deprecated_features.permit.transient_nonexcl_queues = false",
        "let clients declare them durable, or exclusive; --rehearse shows whether this target takes them", since=_4_3,
    ),
    ReleaseRule(
        ObjectKind.QUEUE, ObjectionKind.TRAP,
        lambda body: type_of(body) == "quorum" and "x-delivery-limit" not in body[_ARGUMENTS],
        "no x-delivery-limit: since 4.0 a quorum queue drops, or dead-letters, what came back 20 times",
        "set delivery-limit by a policy, -1 for none", since=_4_0,
    ),
    ReleaseRule(
        ObjectKind.BINDING, ObjectionKind.REFUSED,
        lambda body: body["routing_key"].split(".").count("#") > _MOST_WILDCARDS,
        "a topic exchange takes keys with two # at most", "bind with fewer, two of them in a row mean the same as one",
        since=(4, 3, 5),
    ),
)  # fmt: skip
"""Seen on 3.10.8, 4.0.5 and 4.3.6, over the HTTP API."""

_BUILT_IN: Final[Mapping[str, Release]] = {
    "direct": _EVER, "fanout": _EVER, "topic": _EVER, "headers": _EVER,
    "x-local-random": _4_0, "x-modulus-hash": _4_3,
}  # fmt: skip
DELAYED: Final = "x-delayed-message"
_PLUGINS: Final = {
    DELAYED: "rabbitmq_delayed_message_exchange",
    "x-consistent-hash": "rabbitmq_consistent_hash_exchange",
    "x-random": "rabbitmq_random_exchange",
    "x-recent-history": "rabbitmq_recent_history_exchange",
    "x-jms-topic": "rabbitmq_jms_topic_exchange",
    "x-modulus-hash": "rabbitmq_sharding",
    "x-federation-upstream": "rabbitmq_federation",
}
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
    **dict.fromkeys(("consumer-timeout", "stream-filter-size-bytes", "target-group-size"), (3, 11, 0)),
    **dict.fromkeys(("delayed-retry-type", "delayed-retry-min", "delayed-retry-max"), _4_3),
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
        if rule.kind is key.kind and rule.since <= target < rule.before and rule.applies(body):
            objections.append(Objection(rule.verdict, key, rule.reason, rule.advice))
            body = without(body, rule.section, rule.left_out)
    if key.kind is ObjectKind.EXCHANGE:
        objections += _of_type(key, body["type"], target, types)
    if key.kind is ObjectKind.POLICY:
        objections += _of_settings(key, body["definition"], target)
    return body, objections


def without(body: Body, section: str, names: frozenset[str]) -> Body:
    if not names & body[section].keys():
        return body
    return {**body, section: {name: value for name, value in body[section].items() if name not in names}}


def _of_type(key: ObjectKey, kind: str, target: Release, types: frozenset[str] | None) -> Iterator[Objection]:
    if kind in types if types is not None else _BUILT_IN.get(kind, _NEVER) <= target:
        return
    plugin = _PLUGINS.get(kind)
    advice = f"enable {plugin} at the target" if plugin else "enable the plugin that has it at the target"
    known = "" if types is not None else " by itself"
    yield Objection(ObjectionKind.REFUSED, key, f"the target has no exchanges of type {kind!r}{known}", advice)


def _of_settings(key: ObjectKey, definition: Mapping[str, Any], target: Release) -> Iterator[Objection]:
    unknown = sorted(name for name in definition if _SETTINGS.get(name, _NEVER) > target)
    if unknown:
        names = ", ".join(repr(name) for name in unknown)
        reason = f"RabbitMQ {release_text(target)} doesn't know {names} without a plugin"
        yield Objection(
            ObjectionKind.REFUSED, key, reason, "enable the plugin at the target; the agent federates without one"
        )


def as_quorum(key: ObjectKey, body: Body) -> tuple[Body, list[Objection]]:
    """A mirrored queue as a quorum queue, and what that changes."""
    if not body["durable"] or body["auto_delete"]:
        return body, [Objection(ObjectionKind.TRAP, key, "only durable queues can be quorum queues", _KEEPS_ITS_TYPE)]
    arguments = body[_ARGUMENTS]
    lost = [name for name in _NO_QUORUM if name in arguments]
    objections = [Objection(ObjectionKind.TRAP, key, f"{name}: {_NO_QUORUM[name]}", _LEFT_OUT) for name in lost]
    if arguments.get("x-overflow") == "reject-publish-dlx":
        reason = "x-overflow: reject-publish-dlx means nothing to quorum queues, which drop the oldest instead"
        objections.append(Objection(ObjectionKind.TRAP, key, reason, "let clients declare it with reject-publish"))
    kept = {name: value for name, value in arguments.items() if name not in _NO_QUORUM}
    return {**body, _ARGUMENTS: {**kept, TYPE: "quorum"}}, objections


def changed_arguments(before: Body, after: Body) -> Sequence[str]:
    """The arguments that clients have to declare differently."""
    old, new = before.get(_ARGUMENTS, {}), after.get(_ARGUMENTS, {})
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
