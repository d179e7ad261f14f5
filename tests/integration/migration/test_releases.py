"""From 3.10 to 4.3 and back: what was predicted is what the target refuses, and all else is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.integration.migration.scene import MigrationScene
from tests.lab.node import Node

pytestmark = pytest.mark.versions
Between = Callable[[Node, Node], MigrationScene]
LEFT_OUT: Final = {"v1", "located"}


def only_old(migrated: MigrationScene) -> None:
    """What 3.10 takes, and later releases don't."""
    admin, vhost = migrated.source.admin, migrated.vhost
    admin.queue(vhost, "v1", arguments={"x-queue-version": 1, "x-max-length": 3})
    admin.queue(vhost, "located", arguments={"x-queue-master-locator": "client-local"})
    admin.queue(vhost, "lazy", arguments={"x-queue-mode": "lazy"})
    admin.queue(vhost, "mirrored", arguments={"x-max-priority": 5, "x-queue-mode": "lazy"})
    admin.queue(vhost, "mirrored and passing", auto_delete=True)
    admin.policy(vhost, "mirrors", "^mirrored", definition={"ha-mode": "all", "message-ttl": 60_000}, apply_to="queues")
    admin.policy(vhost, "only-mirrors", "^nothing", definition={"ha-mode": "all"}, apply_to="queues")
    admin.policy(vhost, "long", "a" * 1_025, definition={"max-length": 5}, apply_to="queues")
    admin.bind(vhost, "x", "lazy", "#.#.#")


def names(objections: list[dict[str, Any]], verdict: str) -> set[str]:
    return {each["name"] for each in objections if each["verdict"] == verdict}


def test_to_a_release_that_refuses_some(between: Between, broker: Node, broker_on: Callable[..., Node]) -> None:
    migrated = between(broker, broker_on("sid"))
    migrated.fill()
    only_old(migrated)
    migrated.write(queues={".*": {"convert": "quorum"}})
    planned = migrated.run("plan", status=5)
    assert names(planned["objections"], "refused") == {*LEFT_OUT, "mirrors", "only-mirrors", "long", "x"}
    rehearsed = migrated.run("plan", "--rehearse", status=5)
    assert names(rehearsed["objections"], "refused") == names(planned["objections"], "refused"), "and each once"
    assert len(rehearsed["objections"]) == len(planned["objections"])
    assert migrated.scratches() == []
    copied = migrated.run("copy", status=5)
    assert [(each["kind"], each["name"]) for each in copied["left"]] == [("policy", "long"), ("binding", "x")]
    assert migrated.names(migrated.target, "queues") == migrated.names(migrated.source, "queues")
    assert migrated.names(migrated.target, "policies") == {"limits", "mirrors"}
    admin, vhost = migrated.target.admin, migrated.vhost
    assert admin.get("queues", vhost, "mirrored")["arguments"] == {"x-queue-type": "quorum"}
    assert admin.get("queues", vhost, "mirrored and passing")["arguments"] == {"x-queue-type": "classic"}
    assert admin.get("queues", vhost, "v1")["arguments"] == {"x-queue-type": "classic", "x-max-length": 3}
    assert admin.get("policies", vhost, "mirrors")["definition"] == {"message-ttl": 60_000}
    again = migrated.run("copy", status=5)
    assert (again["copied"], again["left"]) == ({}, copied["left"])


def test_to_an_older_release(between: Between, broker: Node, broker_on: Callable[..., Node]) -> None:
    migrated = between(broker_on("sid"), broker)
    migrated.fill()
    admin, vhost = migrated.source.admin, migrated.vhost
    admin.policy(vhost, "typed", "^q", definition={"max-length": 5}, apply_to="quorum_queues")
    admin.exchange(vhost, "local", "x-local-random")
    planned = migrated.run("plan", status=5)
    assert names(planned["objections"], "refused") == {"typed", "local"}
    copied = migrated.run("copy", status=5)
    assert {each["name"] for each in copied["left"]} == {"typed", "local"}
    assert migrated.bindings(migrated.target) == migrated.bindings(migrated.source)


def test_transient_queues_where_they_are_not_permitted(
    between: Between, broker: Node, borrowed: Callable[..., Node]
) -> None:
    """Only a rehearsal can know."""
    target = borrowed(release="sid", conf=["deprecated_features.permit.transient_nonexcl_queues = false"])
    migrated = between(broker, target)
    migrated.source.admin.queue(migrated.vhost, "transient", durable=False)
    assert names(migrated.run("plan")["objections"], "trap") == {"transient"}
    assert names(migrated.run("plan", "--rehearse", status=5)["objections"], "refused") == {"transient"}
    copied = migrated.run("copy", status=5)
    assert "transient_nonexcl_queues" in copied["left"][0]["reason"]
