"""Objects as brokers show them, over the HTTP API or in an export → values that can be compared and copied.

Policies keep what they say, parameters only their names: their values hold passwords.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from agent.core import fields
from agent.core.fields import UNREAD, UnusableError
from agent.core.migration.objects import (
    Body,
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    Objects,
    binding_key,
    queue_body,
    release_of,
    vhost_key,
)
from agent.core.rules.patterns import TimeBudget, TimedPattern, VhostTimeBudget
from agent.definitions.document.findings import file_error
from agent.definitions.models.values import kind_of
from agent.definitions.sources.exports import MAX_BYTES, parse_export
from agent.read_file import UnreadableError, read_file

JsonObject = Mapping[str, Any]
_NO_ARGUMENTS: Final = "is shown without its arguments: is the node of the queue down?"
_FLAGS: Final = ("durable", "auto_delete", "internal")
_REPLICATED: Final = ("quorum", "stream")
_LISTS: Final = ("vhosts", "policies", "exchanges", "queues", "bindings", "parameters")
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "vhosts": ("name",),
    "policies": ("name", "pattern"),
    "exchanges": ("name", "type"),
    "queues": ("name",),
    "bindings": ("source", "destination", "destination_type", "routing_key"),
    "parameters": ("component", "name"),
}


class ObjectsOfVhosts:
    """Collects the objects of a cluster, a list at a time."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Body] = {}
        self.exclusive: set[ObjectKey] = set()
        self.in_force: dict[ObjectKey, str] = {}
        self.unread: list[tuple[ObjectKey, str]] = []

    def add_vhost(self, name: str, answer: JsonObject) -> None:
        tags, kind = answer.get("tags"), answer.get("default_queue_type")
        body: dict[str, Any] = {
            "description": description if isinstance(description := answer.get("description"), str) else "",
            "tags": [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        }
        if kind in _REPLICATED:
            body["default_queue_type"] = kind
        self.objects[vhost_key(name)] = body

    def add_policies(self, vhost: str, answers: Iterable[JsonObject]) -> None:
        for answer in answers:
            key = ObjectKey(ObjectKind.POLICY, vhost, answer["name"])
            found, priority = answer.get("definition"), answer.get("priority")
            body = {
                "pattern": answer["pattern"],
                "apply-to": answer.get("apply-to") or "all",
                "priority": priority if isinstance(priority, int | float) else 0,
                "definition": found if isinstance(found, dict) else {},
            }
            self._add(key, body, answer, body["definition"])

    def add_exchanges(self, vhost: str, answers: Iterable[JsonObject]) -> None:
        for answer in answers:
            arguments = _arguments(answer)
            body = {"type": answer["type"], **{flag: answer.get(flag) is True for flag in _FLAGS}}
            key = ObjectKey(ObjectKind.EXCHANGE, vhost, answer["name"])
            self._add(key, {**body, "arguments": arguments}, answer, arguments)

    def add_queues(self, vhost: str, answers: Iterable[JsonObject]) -> None:
        for answer in answers:
            key = ObjectKey(ObjectKind.QUEUE, vhost, answer["name"])
            if answer.get("exclusive") is True:
                self.exclusive.add(key)
                continue
            if "arguments" not in answer:
                self.unread.append((key, _NO_ARGUMENTS))
                continue
            arguments = _arguments(answer)
            self._add(key, queue_body(answer, arguments), answer, arguments)
            policy = answer.get("policy")
            if isinstance(policy, str) and policy:
                self.in_force[key] = policy

    def add_bindings(self, vhost: str, answers: Iterable[JsonObject]) -> None:
        for answer in answers:
            arguments = _arguments(answer)
            key = binding_key(vhost, answer, arguments)
            if key.name:  # the default exchange has those of all queues by itself
                self._add(key, {"routing_key": key.routing_key, "arguments": arguments}, answer, arguments)

    def _add(self, key: ObjectKey, body: Body, answer: JsonObject, arguments: JsonObject) -> None:
        reason = answer.get(UNREAD)
        try:
            fields.check_json(arguments)
            for text in (key.vhost, key.name, key.destination, key.routing_key):
                text.encode()
        except UnusableError as error:
            reason = str(error)
        except UnicodeEncodeError:
            reason = "has a name that isn't UTF-8"
        if reason is None:
            self.objects[key] = body
        else:
            self.unread.append((key, str(reason)))


def _arguments(answer: JsonObject) -> dict[str, Any]:
    """Old releases write an empty table as []."""
    found = answer.get("arguments")
    return found if isinstance(found, dict) else {}


def read_cluster_export(path: str) -> ClusterObjects:
    """A cluster by its definitions export. Raises ConfigurationError."""
    try:
        raw, _ = parse_export(read_file(path, MAX_BYTES), path)
    except UnreadableError as error:
        raise file_error(path, str(error)) from error
    if not isinstance(raw, dict):
        raise file_error(path, f"expected a definitions export, got {kind_of(raw)}")
    vhost = raw.get("original_vhost_name")
    lists = {name: list(_entries(raw, name, path, vhost if isinstance(vhost, str) else "/")) for name in _LISTS}
    if not any(lists.values()):
        raise file_error(path, "this doesn't look like a definitions export; it has none of its lists")
    found = ObjectsOfVhosts()
    for each in lists["vhosts"]:
        metadata = each.get("metadata")
        found.add_vhost(each["name"], {**(metadata if isinstance(metadata, dict) else {}), **each})
    adding = {
        "policies": found.add_policies,
        "exchanges": found.add_exchanges,
        "queues": found.add_queues,
        "bindings": found.add_bindings,
    }
    for name, add in adding.items():
        for each in lists[name]:
            if vhost_key(each["vhost"]) not in found.objects:  # of an export of one vhost
                found.add_vhost(each["vhost"], {})
            add(each["vhost"], [each])
    release = raw.get("rabbitmq_version", raw.get("rabbit_version"))
    return ClusterObjects(
        path,
        (isinstance(release, str) and release_of(release)) or (0, 0, 0),
        found.objects,
        in_force=policies_in_force(found.objects),
        parameters=tuple((each["vhost"], each["component"], each["name"]) for each in lists["parameters"]),
        unread=tuple(found.unread),
    )


def _entries(raw: JsonObject, name: str, path: str, vhost: str) -> Iterator[JsonObject]:
    found = raw.get(name) or []
    if not isinstance(found, list):
        raise file_error(path, f"{name}: expected a list, got {kind_of(found)}")
    for number, each in enumerate(found):
        for needed in _NEEDED[name]:
            if not isinstance(each, dict) or not isinstance(each.get(needed), str):
                raise file_error(path, f"{name}: entry {number} has no {needed!r} that is text")
        yield each if isinstance(each.get("vhost"), str) else {**each, "vhost": vhost}


def policies_in_force(objects: Objects) -> dict[ObjectKey, str]:
    """The policy of each queue, which exports don't show. Where a pattern takes too long there is none."""
    budget = TimeBudget(time.process_time)
    budgets: dict[str, VhostTimeBudget] = {}
    ranked: dict[str, list[tuple[str, TimedPattern]]] = {}
    policies = [key for key in objects if key.kind is ObjectKind.POLICY and objects[key]["apply-to"] != "exchanges"]
    for key in sorted(policies, key=lambda key: (-objects[key]["priority"], key.name)):
        of_vhost = budgets.setdefault(key.vhost, budget.of_vhost())
        ranked.setdefault(key.vhost, []).append((key.name, TimedPattern(objects[key]["pattern"], of_vhost)))
    found: dict[ObjectKey, str] = {}
    for key in objects:
        if key.kind is ObjectKind.QUEUE:
            matching = (name for name, pattern in ranked.get(key.vhost, ()) if pattern.matches(key.name))
            found.update((key, name) for name in islice(matching, 1))
    return found
