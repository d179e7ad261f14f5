"""Responses of the HTTP API, as RabbitMQ spells them; `agent.definitions` turns them into the model.

They are checked before use: a proxy, or another server, may send anything. A key that every release sends has to be
there, and of its type; one that is `NotRequired` is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
    get_origin,
    get_type_hints,
)

from agent.core.fields import UNREAD

T = TypeVar("T")
Table: TypeAlias = Annotated[dict[str, Any], list]
"""Old releases write an empty table as []."""


class Overview(TypedDict):
    cluster_name: str
    rabbitmq_version: str
    product_name: NotRequired[str]
    product_version: NotRequired[str]
    disable_stats: NotRequired[Any]
    rates_mode: NotRequired[Any]
    exchange_types: NotRequired[Any]


class VhostAnswer(TypedDict):
    """With what is given when it is made; before 3.11 there is no default queue type, or it is "undefined"."""

    name: str
    description: NotRequired[Any]
    tags: NotRequired[Any]
    default_queue_type: NotRequired[Any]


class ParameterAnswer(TypedDict):
    vhost: str
    component: str
    name: str
    value: NotRequired[Any]


PolicyAnswer = TypedDict(
    "PolicyAnswer",
    {
        "vhost": str,
        "name": str,
        "pattern": str,
        "apply-to": NotRequired[str],
        "definition": Table,
        "priority": NotRequired[int | float],
    },
)


class ExchangeAnswer(TypedDict):
    """`policy` is the name of the policy in force, missing if there is none."""

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Table
    policy: NotRequired[str]


class QueueAnswer(TypedDict):
    """`policy` is the name of the policy in force, missing, null or empty if there is none. `exclusive` is null for
    some queue types. A queue that is `down` may have no policy and messages.
    """

    name: str
    type: NotRequired[str]
    state: NotRequired[str]
    durable: NotRequired[bool]
    auto_delete: NotRequired[bool]
    exclusive: NotRequired[bool | None]
    arguments: NotRequired[dict[str, Any]]
    policy: NotRequired[str | None]
    messages: NotRequired[int]


class QueueCountsAnswer(TypedDict):
    """The number of messages that went through a queue since the broker began to count, and that are in it now, both
    seconds old. Of a queue without traffic since then there are no `message_stats`, and of an idle one of some types no
    `messages`."""

    name: str
    messages: NotRequired[Any]
    message_stats: NotRequired[Any]


class QueueFiguresAnswer(TypedDict):
    """A queue's contents and what went through it since the broker began to count, all of it seconds old; and its node.
    Of a quorum queue that is its `leader`."""

    name: str
    state: NotRequired[Any]
    node: NotRequired[Any]
    leader: NotRequired[Any]
    messages: NotRequired[Any]
    messages_unacknowledged: NotRequired[Any]
    consumers: NotRequired[Any]
    message_stats: NotRequired[Any]


class QueueContentsAnswer(TypedDict):
    """The contents of a queue; every figure may be missing. `messages` also counts those that a quorum queue is
    dead-lettering, which are neither ready nor unacknowledged. `exclusive` is null for some queue types."""

    name: str
    type: NotRequired[Any]
    state: NotRequired[Any]
    exclusive: NotRequired[Any]
    arguments: NotRequired[Any]
    policy: NotRequired[Any]
    messages: NotRequired[Any]
    messages_ready: NotRequired[Any]
    messages_unacknowledged: NotRequired[Any]
    members: NotRequired[Any]
    online: NotRequired[Any]


class ClientAnswer(TypedDict):
    """A connection of any protocol with who made it, and when in milliseconds since 1970; fields may be missing."""

    name: str
    vhost: NotRequired[Any]
    user: NotRequired[Any]
    protocol: NotRequired[Any]
    peer_host: NotRequired[Any]
    connected_at: NotRequired[Any]
    client_properties: NotRequired[Any]


class ConnectionAnswer(TypedDict):
    """`protocol` is text such as "AMQP 0-9-1"; of AMQP 1.0 "AMQP 1-0", and "AMQP 1.0" before 4.0."""

    protocol: NotRequired[Any]


class BindingAnswer(TypedDict):
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    routing_key: str
    arguments: Table


class FederationLinkAnswer(TypedDict):
    """A link of the native plugin; other keys differ by release."""

    vhost: str
    type: NotRequired[Literal["exchange", "queue"]]
    upstream: str
    status: NotRequired[str]
    exchange: NotRequired[str]
    queue: NotRequired[str]
    upstream_exchange: NotRequired[str]
    upstream_queue: NotRequired[str]
    node: NotRequired[str]
    id: NotRequired[str]
    error: NotRequired[str]


class ConsumerAnswer(TypedDict):
    """A consumer of a queue; `queue` has its name, and `channel_details` that of its node, or its host and user; they
    are empty where it is down."""

    queue: dict[str, Any]
    consumer_tag: str
    arguments: NotRequired[Any]
    channel_details: NotRequired[Any]


class ShovelAnswer(TypedDict):
    """A shovel of the native plugin; those of its static configuration have no vhost."""

    name: str
    vhost: NotRequired[str]
    type: NotRequired[str]
    state: NotRequired[str]
    node: NotRequired[str]


class NodeAnswer(TypedDict):
    """A node of the cluster. A running one shows its plugins and alarms once the broker has collected statistics,
    within seconds of its start; never where statistics are disabled."""

    name: str
    running: NotRequired[Any]
    uptime: NotRequired[Any]
    enabled_plugins: NotRequired[Any]
    partitions: NotRequired[Any]
    mem_alarm: NotRequired[Any]
    disk_free_alarm: NotRequired[Any]


class WhoamiAnswer(TypedDict):
    """Tags are a list, or text with commas where the broker has users from before 3.9."""

    name: str
    tags: NotRequired[Any]


class ApiUser(NamedTuple):
    """The user of the HTTP API."""

    name: str
    tags: frozenset[str]

    @property
    def sees_others(self) -> bool:
        """True if it is shown others' connections and consumers; without such a tag, lists of them are empty."""
        return "monitoring" in self.tags or self.is_administrator

    @property
    def is_administrator(self) -> bool:
        return "administrator" in self.tags


class TopicPermissionAnswer(TypedDict):
    """A user's permissions for the routing keys of a topic exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class PermissionAnswer(TypedDict):
    """A user's permissions in a vhost."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class GlobalParameterAnswer(TypedDict):
    name: str
    value: NotRequired[Any]


class ShapeError(ValueError):
    """An object lacks a key that every release of RabbitMQ sends; the message completes "an object …"."""


_NAMES: Final[Mapping[type, str]] = {str: "text", dict: "a mapping", list: "a list", bool: "true or false"}


def taking(answer: type[T]) -> Callable[[Mapping[str, Any]], T]:
    """A function that keeps the keys of an answer, sharing their text among all objects; it raises ShapeError."""
    hints = get_type_hints(answer, include_extras=True)
    needed = {key: _kinds(hint) for key, hint in hints.items() if get_origin(hint) is not NotRequired}
    keys = (*hints, UNREAD)

    def take(found: Mapping[str, Any]) -> T:
        is_whole = UNREAD not in found
        for key, kinds in needed.items():
            if key not in found:
                if is_whole or kinds == (str,):  # texts are there even if an object could not be read completely
                    raise ShapeError(f"has no {key!r}")
            elif not isinstance(found[key], kinds):
                raise ShapeError(f"has no {key!r} that is {' or '.join(_NAMES[kind] for kind in kinds)}")
        return cast("T", {key: found[key] for key in keys if key in found})

    return take


def _kinds(hint: Any) -> tuple[type, ...]:
    origin = get_origin(hint)
    if origin is Annotated:
        return (*_kinds(hint.__origin__), *hint.__metadata__)
    return (str if origin is Literal else origin or hint,)
