"""Objects as brokers show them, over the HTTP API or in an export → values that can be compared and copied.

Policies keep what they say, parameters only their names: their values hold passwords.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from agent.core import fields
from agent.core.fields import UNREAD, UnusableError
from agent.core.migration.objects import (
    Body,
    ClusterObjects,
    ObjectKey,
    ObjectKind,
    binding_key,
    is_everywhere,
    queue_body,
    release_of,
    vhost_key,
)
from agent.definitions.document.findings import file_error
from agent.definitions.models.values import kind_of
from agent.definitions.sources.exports import MAX_BYTES, parse_export
from agent.read_file import UnreadableError, read_file

JsonObject = Mapping[str, Any]
KINDS: Final = {
    "policies": ObjectKind.POLICY,
    "exchanges": ObjectKind.EXCHANGE,
    "queues": ObjectKind.QUEUE,
    "bindings": ObjectKind.BINDING,
}
"""By the lists of exports, and of the HTTP API."""
_NO_ARGUMENTS: Final = "is shown without its arguments: is the node of the queue down?"
_FLAGS: Final = ("durable", "auto_delete", "internal")
_OF_MQTT: Final = "rabbit_mqtt_qos0_queue"
"""The type of queues that end with their MQTT clients, and that no others can declare."""
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
        self.passing: set[ObjectKey] = set()
        self.unread: dict[ObjectKey, str] = {}

    def add_vhost(self, name: str, answer: JsonObject) -> None:
        """With the type of its queues, which the target's nodes may have another default for."""
        tags, kind = answer.get("tags"), answer.get("default_queue_type")
        self.objects[vhost_key(name)] = {
            "description": description if isinstance(description := answer.get("description"), str) else "",
            "tags": [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
            "default_queue_type": kind if isinstance(kind, str) and kind != "undefined" else "classic",
        }

    def empty_vhosts(self) -> set[str]:
        """Those that were added and have nothing for which it takes permissions, as policies don't."""
        free = {ObjectKind.VHOST, ObjectKind.POLICY}
        made = (key for key in {*self.objects, *self.passing, *self.unread} if key.kind not in free)
        return {key.vhost for key in self.objects} - {key.vhost for key in made if not is_everywhere(key)}

    def add(self, kind: ObjectKind, vhost: str, answers: Iterable[JsonObject]) -> None:
        for answer in answers:
            # Old releases write an empty table as [].
            found = answer.get("definition" if kind is ObjectKind.POLICY else "arguments")
            table = found if isinstance(found, dict) else {}
            is_binding = kind is ObjectKind.BINDING
            key = binding_key(vhost, answer, table) if is_binding else ObjectKey(kind, vhost, answer["name"])
            is_queue = kind is ObjectKind.QUEUE
            if is_queue and (answer.get("exclusive") is True or answer.get("type") == _OF_MQTT):
                self.passing.add(key)
            elif is_queue and "arguments" not in answer:
                self.unread[key] = _NO_ARGUMENTS
            elif key.name or not is_binding:  # the default exchange has those of all queues by itself
                self._add(key, _body(key, answer, table), answer.get(UNREAD), table)

    def _add(self, key: ObjectKey, body: Body, reason: object, table: JsonObject) -> None:
        try:
            fields.check_json(table)
            for text in (key.vhost, key.name, key.destination, key.routing_key):
                text.encode()
        except UnusableError as error:
            reason = error
        except UnicodeEncodeError:
            reason = "has a name that isn't UTF-8"
        if reason is None:
            self.objects[key] = body
        else:
            self.unread[key] = str(reason)


def _body(key: ObjectKey, answer: JsonObject, table: JsonObject) -> Body:
    match key.kind:
        case ObjectKind.POLICY:
            priority, apply_to = answer.get("priority"), answer.get("apply-to") or "all"
            priority = priority if isinstance(priority, int | float) else 0
            return {"pattern": answer["pattern"], "apply-to": apply_to, "priority": priority, "definition": table}
        case ObjectKind.EXCHANGE:
            flags = {flag: answer.get(flag) is True for flag in _FLAGS}
            return {"type": answer["type"], **flags, "arguments": table}
        case ObjectKind.QUEUE:
            return queue_body(answer, table)
    return {"routing_key": key.routing_key, "arguments": table}


def read_cluster_export(path: str) -> ClusterObjects:
    """A cluster by its definitions export. Raises ConfigurationError."""
    try:
        raw, _ = parse_export(read_file(path, MAX_BYTES), path)
    except UnreadableError as error:
        raise file_error(path, str(error)) from error
    if not isinstance(raw, dict):
        raise file_error(path, f"expected a definitions export, got {kind_of(raw)}")
    vhost = raw.get("original_vhost_name")
    lists = {name: list(_entries(raw, name, path, vhost if isinstance(vhost, str) else "/")) for name in _NEEDED}
    if not any(lists.values()):
        raise file_error(path, "this doesn't look like a definitions export; it has none of its lists")
    found = ObjectsOfVhosts()
    for each in lists["vhosts"]:
        metadata = each.get("metadata")
        found.add_vhost(each["name"], {**(metadata if isinstance(metadata, dict) else {}), **each})
    for name, kind in KINDS.items():
        for each in lists[name]:
            if vhost_key(each["vhost"]) not in found.objects:  # of an export of one vhost
                found.add_vhost(each["vhost"], {})
            found.add(kind, each["vhost"], [each])
    release = raw.get("rabbitmq_version", raw.get("rabbit_version"))
    return ClusterObjects(
        path,
        (isinstance(release, str) and release_of(release)) or (0, 0, 0),
        found.objects,
        parameters=tuple((each["vhost"], each["component"], each["name"]) for each in lists["parameters"]),
        unread=found.unread,
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
