"""The words of the domain: what operators define, what exists on the downstream, and the links that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Final, TypeAlias

from agent.core import fields
from agent.core.addresses.uri import AmqpUri, HttpUrl
from agent.core.fields import EMPTY, Table
from agent.core.links.lag import LagCritical
from agent.core.links.read_limits import RateLimit
from agent.errors import Place

DEFAULT_VHOST: Final = "/"
"""Of URIs and files that name none."""
STREAM_OFFSET: Final = "x-stream-offset"
"""The consumer argument that says where to begin in a stream, and the header of what a stream delivers."""


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
    """The ways in which a policy names its upstreams."""

    UPSTREAM = "federation-upstream"
    SET = "federation-upstream-set"
    PATTERN = "federation-upstream-pattern"


class DeleteAfter(StrEnum):
    """The conditions under which a shovel ends by itself; the third one is a number of messages."""

    NEVER = "never"
    QUEUE_LENGTH = "queue-length"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings of a link from an upstream or a set, with RabbitMQ's defaults; prefetch None is `auto`, quarantine
    None is `never`, probe None is `off`."""

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
    quarantine_after: float | None = 600.0
    probe: float | None = None
    lag_critical: LagCritical | None = None
    set_headers: Table = EMPTY
    remove_headers: tuple[str, ...] = ()
    rate_limit: RateLimit | None = None


@dataclass(frozen=True, slots=True)
class Upstream:
    """A remote cluster; `uris` are interchangeable endpoints, as are those of its HTTP API, `management`."""

    name: str
    uris: tuple[AmqpUri, ...]
    place: Place
    settings: LinkSettings = LinkSettings()
    management: tuple[HttpUrl, ...] = ()


@dataclass(frozen=True, slots=True)
class SetMember:
    """An upstream of a set, and the settings that win over its own: those that are `written`."""

    upstream: str
    settings: LinkSettings = LinkSettings()
    written: frozenset[str] = frozenset()

    def over(self, upstream: LinkSettings) -> LinkSettings:
        return replace(upstream, **{name: getattr(self.settings, name) for name in self.written})


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
    federation: Federation | None  # None federates nothing, and keeps policies of a lower priority from doing so
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

    exchange: Exchange
    place: Place
    upstream_set: str | None = None


@dataclass(frozen=True, slots=True)
class _ShovelQueue:
    """A queue at one end; where it is missing it is declared, unless it is predeclared."""

    queue: str
    arguments: Table = EMPTY
    is_predeclared: bool = False

    def __str__(self) -> str:
        """The end as people read it; the same for all ends."""
        return f"queue {self.queue}"


@dataclass(frozen=True, slots=True)
class QueueSource(_ShovelQueue):
    """A queue to consume from."""

    @property
    def is_quorum(self) -> bool:
        """True if the definition says that it is a quorum queue."""
        return fields.get(self.arguments, "x-queue-type") == fields.text("quorum")

    @property
    def is_stream(self) -> bool:
        """True if the arguments say that it is a stream."""
        return fields.get(self.arguments, "x-queue-type") == fields.text("stream")

    @property
    def keys(self) -> Mapping[str, str]:
        """The name of the object, by the keys of a shovel's definition; the same for all ends."""
        return {"src-queue": self.queue}


@dataclass(frozen=True, slots=True)
class ExchangeSource:
    """An exchange to consume from, by a queue of the shovel's own."""

    exchange: str
    routing_key: str = ""

    @property
    def keys(self) -> Mapping[str, str]:
        return {"src-exchange": self.exchange, "src-exchange-key": self.routing_key}

    def __str__(self) -> str:
        return f"exchange {self.exchange or '(default)'}"


@dataclass(frozen=True, slots=True)
class QueueDestination(_ShovelQueue):
    """A queue to publish to."""

    @property
    def keys(self) -> Mapping[str, str]:
        return {"dest-queue": self.queue}


@dataclass(frozen=True, slots=True)
class ExchangeDestination:
    """An exchange and a routing key to publish with; None is each message's own."""

    exchange: str | None = None
    routing_key: str | None = None

    @property
    def keys(self) -> Mapping[str, str]:
        written = {"dest-exchange": self.exchange, "dest-exchange-key": self.routing_key}
        return {key: value for key, value in written.items() if value is not None}

    def __str__(self) -> str:
        name = "each message's own exchange" if self.exchange is None else f"exchange {self.exchange or '(default)'}"
        return name if self.routing_key is None else f"{name}, key {self.routing_key}"


@dataclass(frozen=True, slots=True)
class _Address:
    """An address of AMQP 1.0, as its broker spells them. A queue of RabbitMQ 4 that is missing is declared, unless it
    is predeclared."""

    address: str
    is_predeclared: bool = False

    def __str__(self) -> str:
        return f"address {self.address}"


@dataclass(frozen=True, slots=True)
class AddressSource(_Address):
    """An address to read from by AMQP 1.0."""

    @property
    def keys(self) -> Mapping[str, str]:
        return {"src-address": self.address}


@dataclass(frozen=True, slots=True)
class AddressDestination(_Address):
    """An address to write to by AMQP 1.0."""

    @property
    def keys(self) -> Mapping[str, str]:
        return {"dest-address": self.address}


ShovelSource: TypeAlias = QueueSource | ExchangeSource | AddressSource
ShovelDestination: TypeAlias = QueueDestination | ExchangeDestination | AddressDestination
ShovelPlace: TypeAlias = ShovelSource | ShovelDestination
"""One end of a shovel."""


@dataclass(frozen=True, slots=True)
class PublishProperties:
    """Properties that a shovel gives every message; None leaves the message's own."""

    content_type: str | None = None
    content_encoding: str | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class ShovelSettings:
    """The settings by which a shovel moves messages; prefetch None is `auto`, quarantine None is `never`, times are in
    seconds."""

    consumer_arguments: Table = EMPTY
    consumer_tag: str | None = None
    prefetch_count: int | None = None
    delete_after: DeleteAfter | int = DeleteAfter.NEVER
    delete_after_duration: int | None = None
    publish_properties: PublishProperties = PublishProperties()
    add_forward_headers: bool = False
    add_timestamp_header: bool = False
    ack_mode: AckMode = AckMode.ON_CONFIRM
    reconnect_delay: float = 5.0
    quarantine_after: float | None = 600.0
    lag_critical: LagCritical | None = None
    set_headers: Table = EMPTY
    remove_headers: tuple[str, ...] = ()
    rate_limit: RateLimit | None = None


@dataclass(frozen=True, slots=True)
class Shovel:
    """One shovel; the addresses of either end are interchangeable. `destination_is_local`: it is the downstream
    itself, which the plugin reaches without a protocol; then it adds other headers. `source_is_local` is only shown."""

    name: str
    source_uris: tuple[AmqpUri, ...]
    destination_uris: tuple[AmqpUri, ...]
    place: Place
    source: ShovelSource
    destination: ShovelDestination = ExchangeDestination()
    settings: ShovelSettings = ShovelSettings()
    destination_is_local: bool = False
    source_is_local: bool = False

    @property
    def reads_stream(self) -> bool:
        """True if the definition says that the source is a stream: nothing that AMQP shows of a queue does."""
        source, arguments = self.source, self.settings.consumer_arguments
        has_offset = fields.get(arguments, STREAM_OFFSET) is not None
        return isinstance(source, QueueSource) and (source.is_stream or has_offset)


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
    """An exchange that exists on the downstream; `policy` is the broker's own verdict on which federates it."""

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
    """A queue that exists on the downstream; `policy` is the broker's own verdict, as of an exchange."""

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
    """The objects in one vhost of the downstream, as far as they can be read."""

    exchanges: Mapping[str, Exchange] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnyLink:
    """One link that should exist, whatever its kind. `problem` is what has to be fixed before it can run."""

    id: str
    vhost: str
    name: str
    uris: tuple[AmqpUri, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Federated(_AnyLink):
    """A link from an upstream, where its object is called `remote_name`. `policy` names what asked for it."""

    upstream: str
    remote_name: str
    settings: LinkSettings
    policy: str
    management: tuple[HttpUrl, ...] = ()

    @property
    def counted_by(self) -> tuple[HttpUrl, ...]:
        """The HTTP APIs that count its messages upstream; they would count probes, too."""
        return () if self.settings.probe is not None else self.management


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeLink(_Federated):
    kind: ClassVar[LinkKind] = LinkKind.EXCHANGE
    exchange: Exchange

    @property
    def cleans_up(self) -> bool:
        """True if what the link built upstream is removed once no definition asks for the link."""
        return self.settings.resource_cleanup_mode is not CleanupMode.NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLink(_Federated):
    kind: ClassVar[LinkKind] = LinkKind.QUEUE
    cleans_up: ClassVar[bool] = False
    queue: Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class ShovelLink(_AnyLink):
    """A shovel as a link. No upstream and no policy asks for it; status, metrics and `plan` show these as empty."""

    kind: ClassVar[LinkKind] = LinkKind.SHOVEL
    cleans_up: ClassVar[bool] = False
    upstream: ClassVar[str] = ""
    remote_name: ClassVar[str] = ""
    policy: ClassVar[str] = ""
    management: ClassVar[tuple[HttpUrl, ...]] = ()
    counted_by: ClassVar[tuple[HttpUrl, ...]] = ()
    shovel: Shovel

    @property
    def settings(self) -> ShovelSettings:
        return self.shovel.settings


FederationLink: TypeAlias = ExchangeLink | QueueLink
Link: TypeAlias = FederationLink | ShovelLink

NativeLink: TypeAlias = tuple[LinkKind, str, str, str]
"""A link of a native plugin: its kind, vhost, name and upstream. A shovel has no upstream: it is empty."""


def native_link(link: Link) -> NativeLink:
    """The one of the plugin that does the same."""
    return link.kind, link.vhost, link.name, link.upstream
