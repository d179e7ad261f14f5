"""What each release refuses of objects that others take, and whether the table that `migrate plan` goes by says so."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import pytest

from agent.core.migration.objects import Body, ObjectKey, ObjectKind, exchange_key, queue_key, release_of
from agent.core.migration.releases import ObjectionKind, adapted
from tests.contract.asking import Release
from tests.lab.admin import AdminError

UNUSED: Final = "federation-agent-nobody-knows"
QUORUM: Final = {"x-queue-type": "quorum"}
CLASSIC: Final = {"x-queue-type": "classic"}
STREAM: Final = {"x-queue-type": "stream"}
QUEUES: Final[tuple[dict[str, Any], ...]] = (
    CLASSIC, QUORUM, STREAM, {**CLASSIC, "x-queue-version": 1}, {**CLASSIC, "x-queue-version": 2},
    {**CLASSIC, "x-queue-mode": "lazy"}, {**CLASSIC, "x-queue-master-locator": "client-local"},
    {**CLASSIC, "x-ha-policy": "all"}, {**CLASSIC, "x-consumer-timeout": 1000}, {**STREAM, "x-consumer-timeout": 1000},
    {**QUORUM, "x-consumer-timeout": 1000}, {**CLASSIC, "x-queue-leader-locator": "balanced"},
    {**QUORUM, "x-overflow": "reject-publish-dlx"}, {**CLASSIC, "x-max-priority": 5}, {**CLASSIC, UNUSED: 1},
    {**QUORUM, "x-delivery-limit": -1}, {**QUORUM, "x-delayed-retry-type": "all"},
    {**QUORUM, "x-consumer-disconnected-timeout": 1000},
)  # fmt: skip
EXCHANGES: Final = ("topic", "x-local-random", "x-modulus-hash", "x-random", "x-consistent-hash", "x-delayed-message")
POLICIES: Final[tuple[dict[str, Any], ...]] = (
    {"ha-mode": "all"}, {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}, {"queue-mode": "lazy"},
    {"queue-version": 1}, {"queue-master-locator": "min-masters"}, {"queue-leader-locator": "balanced"},
    {"max-length": 5, "ha-mode": "all"}, {"consumer-timeout": 1000}, {"stream-filter-size-bytes": 32},
    {"target-group-size": 3}, {"shards-per-node": 2}, {"federation-upstream-set": "all"}, {UNUSED: 1},
    {"consumer-disconnected-timeout": 1000}, {"delivery-limit": -1},
    {"delayed-retry-type": "all", "delayed-retry-min": 1000},
)  # fmt: skip
KEYS: Final = ("#.#", "#.#.#", "a.#.b#.#")


def policy(definition: Body, *, pattern: str = "^nothing$", apply_to: str = "queues") -> Body:
    return {"pattern": pattern, "apply-to": apply_to, "priority": 0, "definition": definition}


def objects(vhost: str) -> Iterator[tuple[ObjectKey, Body]]:
    flags = {"durable": True, "auto_delete": False}
    for number, arguments in enumerate(QUEUES):
        yield queue_key(vhost, f"q{number}"), {**flags, "arguments": arguments}
    yield queue_key(vhost, "transient"), {**flags, "durable": False, "arguments": CLASSIC}
    for kind in EXCHANGES:
        arguments = {"x-delayed-type": "topic"} if kind == "x-delayed-message" else {}
        yield exchange_key(vhost, kind), {"type": kind, **flags, "internal": False, "arguments": arguments}
    for number, definition in enumerate(POLICIES):
        yield ObjectKey(ObjectKind.POLICY, vhost, f"p{number}"), policy(definition)
    for apply_to in ("all", "exchanges", "classic_queues", "quorum_queues", "streams"):
        definition = {"alternate-exchange": "x"} if apply_to == "exchanges" else {"max-length-bytes": 5}
        yield ObjectKey(ObjectKind.POLICY, vhost, apply_to), policy(definition, apply_to=apply_to)
    yield ObjectKey(ObjectKind.POLICY, vhost, "long"), policy({"max-length": 5}, pattern="a" * 1025)


def is_taken(release: Release, key: ObjectKey, body: Body) -> bool:
    paths = {ObjectKind.QUEUE: "queues", ObjectKind.EXCHANGE: "exchanges", ObjectKind.POLICY: "policies"}
    try:
        release.node.admin.put(paths[key.kind], key.vhost, key.name, body=body)
    except AdminError as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        return False
    release.node.admin.delete(paths[key.kind], key.vhost, key.name)
    return True


def test_the_table_of_releases_says_what_brokers_say(release: Release) -> None:
    """Of each object as it is, and of that which is copied instead."""
    version = release_of(release.version)
    assert version is not None
    wrong: list[str] = []
    for key, body in objects(release.vhost):
        copied, objections = adapted(key, body, version, None)
        is_refused = any(each.verdict is ObjectionKind.REFUSED for each in objections)
        if is_taken(release, key, body) is is_refused:
            wrong.append(f"{key} with {body} is {'taken' if is_refused else 'refused'}")
        if copied != body and copied.get("definition", True) and not is_taken(release, key, copied):
            wrong.append(f"{key} is refused as it is copied, with {copied}")
    assert wrong == []


@pytest.mark.parametrize("key", KEYS)
def test_keys_with_many_wildcards(release: Release, key: str) -> None:
    admin, vhost = release.node.admin, release.vhost
    version = release_of(release.version)
    assert version is not None
    binding = ObjectKey(ObjectKind.BINDING, vhost, "amq.topic", "wild", routing_key=key, arguments="{}")
    _, objections = adapted(binding, {"routing_key": key, "arguments": {}}, version, None)
    admin.queue(vhost, "wild")
    try:
        admin.bind(vhost, "amq.topic", "wild", key)
        is_bound = True
    except AdminError:
        is_bound = False
    admin.delete("queues", vhost, "wild")
    assert is_bound is not bool(objections)


def test_exchange_types_are_listed(release: Release) -> None:
    types = {each["name"] for each in release.node.admin.get("overview")["exchange_types"]}
    assert {"direct", "fanout", "headers", "topic"} <= types
    assert ("x-local-random" in types) is (release.version >= "4")
    assert not types & {"x-random", "x-delayed-message"}
