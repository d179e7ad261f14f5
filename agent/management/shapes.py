"""Checks the structure of responses of the HTTP API before use: a proxy, or another server, may send anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from agent.core.fields import UNREAD

Kinds: TypeAlias = type | tuple[type, ...]
_NAMES: Final[Mapping[type, str]] = {str: "text", dict: "a mapping", list: "a list", bool: "true or false"}


class ShapeError(ValueError):
    """An object lacks a key that every release of RabbitMQ sends; the message completes "an object …"."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`needed` must be present and of that kind, `optional` is copied as it is, and all else is dropped."""

    needed: Mapping[str, Kinds]
    optional: tuple[str, ...] = ()
    plain: frozenset[str] = field(init=False)
    """The keys that are present even if an object could not be read completely."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", frozenset(key for key, kinds in self.needed.items() if kinds is str))

    def take(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Keeps the relevant keys, sharing their text among all objects; raises ShapeError."""
        is_whole = UNREAD not in answer
        for key, kinds in self.needed.items():
            if key not in answer:
                if is_whole or key in self.plain:
                    raise ShapeError(f"has no {key!r}")
            elif not isinstance(answer[key], kinds):
                raise ShapeError(f"has no {key!r} that is {_named(kinds)}")
        return {key: answer[key] for key in (*self.needed, *self.optional, UNREAD) if key in answer}


def _named(kinds: Kinds) -> str:
    return " or ".join(_NAMES[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


_TABLE: Final = (dict, list)  # old releases write an empty table as []
OVERVIEW: Final = Shape(
    {"cluster_name": str, "rabbitmq_version": str}, ("product_name", "product_version", "disable_stats", "rates_mode")
)
VHOST: Final = Shape({"name": str})
PARAMETER: Final = Shape({"vhost": str, "component": str, "name": str}, ("value",))
POLICY: Final = Shape(
    {"vhost": str, "name": str, "pattern": str, "definition": _TABLE},
    ("apply-to", "priority"),
)
EXCHANGE: Final = Shape(
    {"name": str, "type": str, "durable": bool, "auto_delete": bool, "internal": bool, "arguments": _TABLE},
    ("policy",),
)
QUEUE: Final = Shape(
    {"name": str}, ("type", "state", "durable", "auto_delete", "exclusive", "arguments", "policy", "messages")
)
QUEUE_COUNTS: Final = Shape({"name": str}, ("messages", "message_stats"))
BINDING: Final = Shape(
    {"source": str, "destination": str, "destination_type": str, "routing_key": str, "arguments": _TABLE}
)
CONSUMER: Final = Shape({"queue": dict, "consumer_tag": str}, ("arguments", "channel_details"))
FEDERATION_LINK: Final = Shape(
    {"vhost": str, "upstream": str},
    ("type", "status", "exchange", "queue", "upstream_exchange", "upstream_queue", "node", "id", "error"),
)
NODE: Final = Shape({"name": str}, ("running", "enabled_plugins", "mem_alarm", "disk_free_alarm"))
SHOVEL: Final = Shape({"name": str}, ("vhost", "type", "state", "node"))
WHOAMI: Final = Shape({"name": str}, ("tags",))
PERMISSION: Final = Shape({"user": str, "vhost": str, "configure": str, "write": str, "read": str})
TOPIC_PERMISSION: Final = Shape({"user": str, "vhost": str, "exchange": str, "write": str, "read": str})
