"""Definitions as values: each object has a key and a body, and the body is what declares it over the HTTP API. The
policy in force of each queue and exchange, as brokers choose it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from agent.core.rules.declarations import PURPOSE, TYPE
from agent.core.rules.names import AGENT_PREFIX
from agent.core.rules.patterns import TimeBudget, TimedPattern, VhostTimeBudget

Release: TypeAlias = tuple[int, ...]
Body: TypeAlias = Mapping[str, Any]
NEWEST: Final = 999
"""The patch of a release that is given without one, as in "4.3"."""
SERVER_NAMED: Final = "amq."
"""Names that only brokers give: each has the exchanges, and a client that wants such a queue gets a new name."""
_OF_EACH_VHOST: Final = frozenset(
    ("", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic", "amq.rabbitmq.trace")
)


class ObjectKind(StrEnum):
    """In the order in which copies are made: each needs those before it."""

    VHOST = "vhost"
    POLICY = "policy"
    EXCHANGE = "exchange"
    QUEUE = "queue"
    BINDING = "binding"


KIND_ORDER: Final = tuple(ObjectKind)


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """The identity of an object. A binding has the name of its source, and all that follows."""

    kind: ObjectKind
    vhost: str
    name: str
    destination: str = ""
    to_exchange: bool = False
    routing_key: str = ""
    arguments: str = ""  # as JSON

    def __str__(self) -> str:
        if self.kind is ObjectKind.VHOST:
            return f"vhost {self.vhost!r}"
        if self.kind is not ObjectKind.BINDING:
            return f"{self.kind} {self.name!r} in vhost {self.vhost!r}"
        to = ObjectKind.EXCHANGE if self.to_exchange else ObjectKind.QUEUE
        key = f"key {self.routing_key!r}" + (f" and arguments {self.arguments}" if self.arguments != "{}" else "")
        return f"binding from exchange {self.name!r} to {to} {self.destination!r} with {key} in vhost {self.vhost!r}"

    @property
    def ends(self) -> tuple[ObjectKey, ObjectKey]:
        """The source and the destination of a binding."""
        kind = ObjectKind.EXCHANGE if self.to_exchange else ObjectKind.QUEUE
        return exchange_key(self.vhost, self.name), ObjectKey(kind, self.vhost, self.destination)


Objects: TypeAlias = Mapping[ObjectKey, Body]


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """One cluster, as far as it is known. Its representation is short, as there may be very many objects."""

    cluster: str
    release: Release
    objects: Objects = field(repr=False, default_factory=dict)
    passing: frozenset[ObjectKey] = field(repr=False, default=frozenset())
    """Queues that end with a connection; they aren't among the objects."""
    parameters: tuple[tuple[str, str, str], ...] | None = field(repr=False, default=())
    """Vhost, component and name of runtime parameters; their values hold passwords, and aren't kept. None if they are
    too many to be read."""
    exchange_types: frozenset[str] | None = field(repr=False, default=None)
    """Those that the cluster has; None if that isn't known."""
    unread: Mapping[ObjectKey, str] = field(repr=False, default_factory=dict)
    """Objects that no other broker can be given, and why."""


def vhost_key(name: str) -> ObjectKey:
    return ObjectKey(ObjectKind.VHOST, name, name)


def exchange_key(vhost: str, name: str) -> ObjectKey:
    return ObjectKey(ObjectKind.EXCHANGE, vhost, name)


def queue_key(vhost: str, name: str) -> ObjectKey:
    return ObjectKey(ObjectKind.QUEUE, vhost, name)


def binding_key(vhost: str, answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> ObjectKey:
    return ObjectKey(
        ObjectKind.BINDING,
        vhost,
        answer["source"],
        answer["destination"],
        answer["destination_type"] == ObjectKind.EXCHANGE,
        answer["routing_key"],
        json.dumps(arguments, sort_keys=True),
    )


def queue_body(answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> Body:
    """With the type in the arguments, whoever chose it: another vhost may have another default. To brokers a classic
    queue is the same with and without it."""
    kind = answer.get("type") or arguments.get(TYPE) or "classic"
    return {
        "durable": answer.get("durable") is not False,
        "auto_delete": answer.get("auto_delete") is True,
        "arguments": {**arguments, TYPE: kind},
    }


def type_of(queue: Body) -> str:
    return str(queue["arguments"][TYPE])


def is_brokers_own(key: ObjectKey) -> bool:
    """True for exchanges and queues that only brokers make."""
    return key.kind is not ObjectKind.POLICY and (not key.name or key.name.startswith(SERVER_NAMED))


def is_everywhere(key: ObjectKey) -> bool:
    """True for exchanges that each vhost has from its beginning."""
    return key.kind is ObjectKind.EXCHANGE and key.name in _OF_EACH_VHOST


def is_of_federation(key: ObjectKey, objects: Objects) -> bool:
    """True for what the agent, or the native plugin, keeps for its links: it means nothing elsewhere."""
    arguments = objects.get(key, {}).get("arguments", ())
    return key.kind is not ObjectKind.POLICY and (key.name.startswith(AGENT_PREFIX) or PURPOSE[0] in arguments)


def in_order(keys: Iterable[ObjectKey]) -> list[ObjectKey]:
    """Each after those that it needs."""
    return sorted(keys, key=lambda key: (KIND_ORDER.index(key.kind), key.vhost, str(key)))


def release_of(text: str) -> Release | None:
    """ "4.3.6" or "4.3", which stands for its newest patch; what follows, as in "3.13.0-rc.1", is dropped."""
    parts = text.split("-", maxsplit=1)[0].split("+", maxsplit=1)[0].split(".")
    if not 2 <= len(parts) <= 4 or not all(part.isascii() and part.isdigit() and len(part) < 5 for part in parts):
        return None
    found = tuple(int(part) for part in parts)
    return found if len(found) > 2 else (*found, NEWEST)


def release_text(release: Release) -> str:
    return ".".join(str(part) for part in release if part != NEWEST)


_TYPED: Final = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


def policy_key(vhost: str, name: str) -> ObjectKey:
    return ObjectKey(ObjectKind.POLICY, vhost, name)


def policies_in_force(
    objects: Objects, of: Iterable[ObjectKey], clock: Callable[[], float]
) -> dict[ObjectKey, str | None]:
    """Their names, of the queues and exchanges that have one. None where that isn't known, since a pattern takes too
    long or can't be used. Of equal priorities it is the first by name; brokers promise none."""
    budget = TimeBudget(clock)
    budgets: dict[str, VhostTimeBudget] = {}
    ranked: dict[str, list[tuple[str, str, TimedPattern]]] = {}
    policies = [key for key in objects if key.kind is ObjectKind.POLICY]
    for key in sorted(policies, key=lambda key: (-objects[key]["priority"], key.name)):
        of_vhost = budgets.setdefault(key.vhost, budget.of_vhost())
        pattern = TimedPattern(objects[key]["pattern"], of_vhost)
        ranked.setdefault(key.vhost, []).append((key.name, objects[key]["apply-to"], pattern))
    found: dict[ObjectKey, str | None] = {}
    for key in of:
        if key.kind not in {ObjectKind.QUEUE, ObjectKind.EXCHANGE}:
            continue
        is_queue = key.kind is ObjectKind.QUEUE
        targets = ("all", "queues", _TYPED.get(type_of(objects[key]))) if is_queue else ("all", "exchanges")
        for name, apply_to, pattern in ranked.get(key.vhost, ()):
            matches = apply_to in targets and pattern.matches(key.name)
            if matches is not False:
                found[key] = name if matches else None
                break
    return found
