"""Responses of the HTTP API, as RabbitMQ spells them; `agent.definitions` turns them into the model."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

Tables: TypeAlias = list[dict[str, Any]]


class Overview(TypedDict):
    cluster_name: str
    rabbitmq_version: str
    product_name: NotRequired[str]
    product_version: NotRequired[str]
    disable_stats: NotRequired[Any]
    rates_mode: NotRequired[Any]


class VhostAnswer(TypedDict):
    name: str


class ParameterAnswer(TypedDict):
    vhost: str
    component: str
    name: str
    value: Any


PolicyAnswer = TypedDict(
    "PolicyAnswer",
    {
        "vhost": str,
        "name": str,
        "pattern": str,
        "apply-to": str,
        "definition": dict[str, Any],
        "priority": int | float,
    },
)


class ExchangeAnswer(TypedDict):
    """`policy` is the name of the policy in force, missing if there is none."""

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any]
    policy: NotRequired[str]


class QueueAnswer(TypedDict):
    """`policy` is the name of the policy in force, missing, null or empty if there is none. `exclusive` is null for
    some queue types. A queue that is `down` may have no policy and messages.
    """

    name: str
    type: NotRequired[str]
    state: NotRequired[str]
    durable: bool
    auto_delete: bool
    exclusive: bool | None
    arguments: dict[str, Any]
    policy: NotRequired[str | None]
    messages: NotRequired[int]


class QueueCountsAnswer(TypedDict):
    """The number of messages that went through a queue since the broker began to count, and that are in it now, both
    seconds old. Of a queue without traffic since then there are no `message_stats`, and of an idle one of some types no
    `messages`."""

    name: str
    messages: NotRequired[Any]
    message_stats: NotRequired[Any]


class BindingAnswer(TypedDict):
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    routing_key: str
    arguments: dict[str, Any]


class FederationLinkAnswer(TypedDict):
    """A link of the native plugin; other keys differ by release."""

    vhost: str
    type: Literal["exchange", "queue"]
    upstream: str
    status: str
    exchange: NotRequired[str]
    queue: NotRequired[str]
    upstream_exchange: NotRequired[str]
    upstream_queue: NotRequired[str]
    node: NotRequired[str]
    id: NotRequired[str]
    error: NotRequired[str]


class ConsumerAnswer(TypedDict):
    """A consumer of a queue; `queue` has its name, and `channel_details` that of its node; they are empty where it is
    down."""

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
    enabled_plugins: NotRequired[Any]
    mem_alarm: NotRequired[Any]
    disk_free_alarm: NotRequired[Any]


class WhoamiAnswer(TypedDict):
    """The user of the HTTP API. Tags are a list, in releases before 3.9 text with commas."""

    name: str
    tags: NotRequired[Any]


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
