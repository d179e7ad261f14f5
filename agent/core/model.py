"""The words of the domain: what operators define, what stands on the downstream, and the links that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agent.core.addresses.uri import AmqpUri
from agent.core.fields import EMPTY, Table
from agent.errors import Place


class LinkKind(StrEnum):
    EXCHANGE = "exchange"
    QUEUE = "queue"
    SHOVEL = "shovel"


class AckMode(StrEnum):
    ON_CONFIRM = "on-confirm"
    ON_PUBLISH = "on-publish"
    NO_ACK = "no-ack"


class QueueType(StrEnum):
    CLASSIC = "classic"
    QUORUM = "quorum"


class CleanupMode(StrEnum):
    DEFAULT = "default"
    NEVER = "never"


class ChannelUse(StrEnum):
    MULTIPLE = "multiple"
    SINGLE = "single"


class ApplyTo(StrEnum):
    EXCHANGES = "exchanges"
    QUEUES = "queues"
    CLASSIC_QUEUES = "classic_queues"
    QUORUM_QUEUES = "quorum_queues"
    STREAMS = "streams"
    ALL = "all"


class Choice(StrEnum):
    """How a policy names its upstreams."""

    UPSTREAM = "federation-upstream"
    SET = "federation-upstream-set"
    PATTERN = "federation-upstream-pattern"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What an upstream or a set says about a link, with RabbitMQ's defaults; prefetch None is `auto`."""

    exchange: str | None = None
    queue: str | None = None
    consumer_tag: str | None = None
    prefetch_count: int | None = None
    reconnect_delay: float = 5.0
    max_hops: int = 1
    ack_mode: AckMode = AckMode.ON_CONFIRM
    trust_user_id: bool = False
    expires: int | None = None
    message_ttl: int | None = None
    queue_type: QueueType = QueueType.CLASSIC
    ha_policy: str | None = None
    bind_nowait: bool = False
    channel_use_mode: ChannelUse = ChannelUse.MULTIPLE
    resource_cleanup_mode: CleanupMode = CleanupMode.DEFAULT
    forward_unrouted: bool = False


@dataclass(frozen=True, slots=True)
class Upstream:
    """A remote cluster; `uris` are interchangeable endpoints, `settings` holds only what was written."""

    name: str
    uris: tuple[AmqpUri, ...]
    place: Place
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetMember:
    upstream: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpstreamSet:
    name: str
    members: tuple[SetMember, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Federation:
    """The part of a policy's definition that federates."""

    choice: Choice
    value: str


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    pattern: str
    apply_to: ApplyTo
    priority: float
    federation: Federation
    place: Place


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding of a downstream exchange, to a queue or to an exchange."""

    routing_key: str
    arguments: Table = EMPTY
    destination: str = ""
    destination_is_exchange: bool = False


@dataclass(frozen=True, slots=True)
class DeclaredExchange:
    """An exchange that the agent declares at start, federated with a set and without a policy."""

    name: str
    type: str
    place: Place
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = EMPTY
    upstream_set: str | None = None


@dataclass(frozen=True, slots=True)
class Shovel:
    """One shovel; `settings` holds what was written besides the endpoints, checked."""

    name: str
    source_uris: tuple[AmqpUri, ...]
    destination_uris: tuple[AmqpUri, ...]
    place: Place
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VhostDefinitions:
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    upstream_sets: Mapping[str, UpstreamSet] = field(default_factory=dict)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    exchanges: Mapping[str, DeclaredExchange] = field(default_factory=dict)
    bindings: Mapping[str, tuple[Binding, ...]] = field(default_factory=dict)
    shovels: Mapping[str, Shovel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definitions:
    """Everything that one source, or all of them merged, define, by vhost."""

    vhosts: Mapping[str, VhostDefinitions] = field(default_factory=dict)

    def of(self, vhost: str) -> VhostDefinitions:
        return self.vhosts.get(vhost, VhostDefinitions())


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange that stands on the downstream; `policy` is the broker's own verdict on which federates it."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = EMPTY
    policy: Policy | None = None
    unusable: str | None = None  # why its arguments can't be represented; they are empty then


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that stands on the downstream; `federation` is the broker's effective definition."""

    name: str
    type: QueueType | None = QueueType.CLASSIC
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    arguments: Table = EMPTY
    policy: Policy | None = None
    unusable: str | None = None


@dataclass(frozen=True, slots=True)
class VhostState:
    """What stands in one vhost of the downstream, as far as it can be read."""

    exchanges: Mapping[str, Exchange] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """One link that should exist. `policy` names what asked for it, `problem` what has to be mended first."""

    id: str
    kind: LinkKind
    vhost: str
    name: str
    upstream: str
    uris: tuple[AmqpUri, ...]
    remote_name: str
    settings: LinkSettings
    policy: str
    exchange: Exchange | None = None
    queue: Queue | None = None
    shovel: Shovel | None = None
    problem: str | None = None
