"""Shovels: the keys of RabbitMQ's dynamic shovels for all of its protocols, older spellings included; and streams as
their sources: where one begins, and what a stream can't have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

from agent.core import fields, model
from agent.core.addresses.rabbitmq_address import addressed
from agent.core.addresses.uri import AmqpUri
from agent.core.fields import EMPTY
from agent.core.model import STREAM_OFFSET
from agent.definitions.document.findings import Spot
from agent.definitions.models import values
from agent.definitions.models.clusters import warn_uris
from agent.definitions.models.validation import SnakeCaseModel, StrictModel
from agent.definitions.models.values import INTEGRAL, MAX_EXPIRY, MAY_BE_EMPTY, key, kind_of, refuse
from agent.errors import Place

NAMED = frozenset({"first", "last", "next"})
_AGO = re.compile("[1-9][0-9]{0,8}[YMDhms]")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)")


def check_stream(raw: Mapping[str, Any], spot: Spot) -> None:
    """Report what a shovel from a stream can't have. Brokers close the connection over some of it, and with it all
    other links that share the connection."""
    consumed, declared = _mapping(raw.get("src-consumer-args")), _mapping(raw.get("src-queue-args"))
    has_offset = STREAM_OFFSET in consumed
    if has_offset and "src-exchange" in raw:
        spot.error(f"{STREAM_OFFSET} needs src-queue, a stream", "src-consumer-args", key=True)
    if has_offset and not _is_offset(consumed[STREAM_OFFSET]):
        spot.error(
            f"{STREAM_OFFSET}: expected first, last, next, an offset, a time such as 2026-11-26T08:00:00Z, or how long "
            "ago, such as 12h",
            "src-consumer-args",
        )
    if not has_offset and declared.get("x-queue-type") != "stream":
        return
    if raw.get("ack-mode") == "no-ack" and raw.get("src-protocol") != "local":  # the plugin's local shovel has it
        spot.error("a stream is read with acknowledgements: use on-confirm or on-publish", "ack-mode")
    if raw.get("src-protocol") == "amqp10":
        spot.warn(
            "the place in a stream that is read by amqp10 isn't remembered: with each connection it is copied again "
            f"from {STREAM_OFFSET} on; read it by amqp091",
            "src-consumer-args",
            key=True,
        )
    if "lag-critical" in raw:
        spot.warn("lag-critical does nothing for a stream: how much waits in one isn't known", "lag-critical", key=True)
    for name in ("src-delete-after", "delete-after"):
        if raw.get(name, "never") != "never":
            message = "messages of a stream can't be counted, as it takes none back: use src-delete-after-duration"
            spot.error(message, name)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_offset(value: object) -> bool:
    if isinstance(value, str):
        return value in NAMED or bool(_AGO.fullmatch(value)) or _seconds(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _seconds(text: str) -> int | None:
    """Seconds since 1970; None if this is no time with its zone."""
    if not _TIME.fullmatch(text):
        return None
    try:
        found = int(datetime.fromisoformat(text.upper()).timestamp())
    except (ValueError, OverflowError):
        return None
    return found if found >= 0 else None


def with_time(arguments: fields.Table) -> fields.Table:
    """The consumer's arguments with a time to begin at as AMQP has it; JSON has none."""
    offset = fields.get(arguments, STREAM_OFFSET)
    seconds = _seconds(offset.value) if offset is not None and offset.tag == "S" else None
    if seconds is None:
        return arguments
    return (*fields.without(arguments, STREAM_OFFSET), (STREAM_OFFSET, fields.Field("T", seconds)))


AMQP10 = "amqp10"
LOCAL = "local"
_OF_AMQP10 = frozenset(
    {"src-address", "dest-address", "dest-properties", "dest-application-properties", "dest-message-annotations"}
)
_NOT_OF_AMQP10 = frozenset(
    {"src-queue", "src-exchange", "src-exchange-key", "src-queue-args", "dest-queue", "dest-exchange"}
    | {"dest-exchange-key", "dest-queue-args", "dest-publish-properties", "publish-properties"}
)
_IGNORED = frozenset({"dest-properties", "dest-application-properties", "dest-message-annotations"})
DEPRECATED = {"deprecated": True}


def _delete_after(value: object) -> object:
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(value, str) and value in set(model.DeleteAfter):
        return model.DeleteAfter(value)
    if isinstance(whole, int) and not isinstance(whole, bool) and whole >= 0:
        return whole
    raise refuse(f"expected never, queue-length or a number of messages, got {kind_of(value)}")


DeleteAfterKey = Annotated[
    model.DeleteAfter | int,
    BeforeValidator(_delete_after),
    WithJsonSchema({"anyOf": [{"enum": ["never", "queue-length"]}, {"type": "integer", "minimum": 0}]}),
]


Protocol = Literal["amqp091", "amqp10", "local"]


class PropertiesModel(SnakeCaseModel):
    """Properties to set on every shovelled message."""

    noun = "dest-publish-properties"

    content_type: values.ShortText = key("MIME type of the body.")
    content_encoding: values.ShortText = key("Encoding of the body.")
    delivery_mode: Annotated[int, Field(ge=1, le=2), INTEGRAL] = key("1 for transient, 2 for persistent.")
    priority: Annotated[int, Field(ge=0, le=255), INTEGRAL] = key("Priority.")
    correlation_id: values.ShortText = key("Correlation identifier.")
    reply_to: values.ShortText = key("Where to reply to.")
    expiration: values.ShortText = key("Milliseconds after which the message expires, as text.")
    message_id: values.ShortText = key("Message identifier.")
    timestamp: Annotated[int, Field(ge=0, lt=2**63), INTEGRAL] = key("Seconds since 1970.")
    type: values.ShortText = key("Type of the message.")
    user_id: values.ShortText = key("User; the broker refuses any except the connected one.")
    app_id: values.ShortText = key("Application.")
    cluster_id: values.ShortText = key("Cluster; of AMQP 0-8.")

    def to_core(self) -> model.PublishProperties:
        return model.PublishProperties(**self.written())


_SPELLINGS = {
    "consumer_arguments": ("src_consumer_args",),
    "consumer_tag": ("src_consumer_name",),
    "prefetch_count": ("prefetch_count", "src_prefetch_count"),
    "delete_after": ("delete_after", "src_delete_after"),
    "delete_after_duration": ("src_delete_after_duration",),
    "publish_properties": ("publish_properties", "dest_publish_properties"),
    "add_forward_headers": ("add_forward_headers", "dest_add_forward_headers"),
    "add_timestamp_header": ("add_timestamp_header", "dest_add_timestamp_header"),
    **{name: (name,) for name in ("ack_mode", "reconnect_delay", "quarantine_after", "lag_critical")},
    **{name: (name,) for name in ("set_headers", "remove_headers", "rate_limit")},
}
"""The keys of each setting. Where both are written, the new spelling, which is last, counts, as with RabbitMQ."""


class ShovelModel(StrictModel):
    """Moves messages from a queue or exchange to another, anywhere."""

    noun = "a shovel"
    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [key]} for key in ("src-queue", "src-exchange", "src-address")],
            "not": {"required": ["dest-queue", "dest-exchange"]},
            "dependentRequired": {f"{end}-address": [f"{end}-protocol"] for end in ("src", "dest")},
        }
    )

    src_uri: values.AmqpUris = Field(
        description="AMQP URI of the source, or a list of interchangeable ones; mandatory."
    )
    src_protocol: Protocol = key(
        "`amqp091` (default), `amqp10`, or `local`: the downstream itself, whatever host the URI names."
    )
    src_address: values.Text = key("With `amqp10`: address to read from, as its broker spells them; mandatory.")
    src_queue: values.Name = key("Queue to consume from; this or `src-exchange`.")
    src_exchange: values.ShortText = key(
        "Exchange to consume from, through the shovel's own queue; this or `src-queue`."
    )
    src_exchange_key: values.ShortText = key("Routing key to bind to `src-exchange` with; empty by default.")
    src_queue_args: values.Arguments = key("Arguments to declare `src-queue` with.")
    src_consumer_args: values.Arguments = key(
        "Arguments to consume with, such as `x-priority`; with `x-stream-offset`, `src-queue` is a stream, and the "
        "shovel begins there. With `amqp10`, filters of the source."
    )
    src_consumer_name: values.ShortText = key("Consumer tag; by AMQP 1.0 the name of the link.")
    src_prefetch_count: values.Prefetch = key("Most messages that may be on their way unacknowledged, or `auto`.")
    src_delete_after: DeleteAfterKey = key(
        "`never` (default), `queue-length` (what the queue holds at start) or a number of messages, then it stops."
    )
    src_delete_after_duration: Annotated[int, Field(ge=1, le=MAX_EXPIRY // 1000), INTEGRAL] = key(
        "Seconds after which it stops."
    )
    src_predeclared: bool = key(
        "Whether `src-queue` has to exist already; false by default. With `amqp10` the agent declares a missing "
        "queue of RabbitMQ 4 only."
    )
    dest_uri: values.AmqpUris = Field(
        description="AMQP URI of the destination, or a list of interchangeable ones; mandatory."
    )
    dest_protocol: Protocol = key("`amqp091` (default), `amqp10`, or `local`, as `src-protocol`.")
    dest_address: values.Text = key("With `amqp10`: address to write to, as its broker spells them; mandatory.")
    dest_properties: dict[str, Any] = key("With `amqp10`: ignored, as by RabbitMQ since 4.2.")
    dest_application_properties: dict[str, Any] = key("With `amqp10`: ignored, as `dest-properties`.")
    dest_message_annotations: dict[str, Any] = key("With `amqp10`: ignored, as `dest-properties`.")
    dest_queue: values.Name = key("Queue to publish to; this or `dest-exchange`.")
    dest_exchange: values.ShortText = key("Exchange to publish to; by default each message's own.")
    dest_exchange_key: values.ShortText = key("Routing key to publish with; by default each message's own.")
    dest_queue_args: values.Arguments = key("Arguments to declare `dest-queue` with.")
    dest_predeclared: bool = key(
        "Whether `dest-queue` has to exist already; false by default. With `amqp10` the agent declares a missing "
        "queue of RabbitMQ 4 only."
    )
    dest_publish_properties: Annotated[PropertiesModel, MAY_BE_EMPTY] = key("Properties to set on every message.")
    dest_add_forward_headers: bool = key(
        "Whether to add the header `x-shovelled`, with `amqp10` and `local` annotations such as `x-opt-shovelled-by`; "
        "false by default."
    )
    dest_add_timestamp_header: bool = key(
        "Whether to add the header `x-shovelled-timestamp`, with `amqp10` and `local` the annotation "
        "`x-opt-shovelled-timestamp`; false by default."
    )
    ack_mode: Annotated[model.AckMode, Strict(False)] = key(
        "When a message is acknowledged at the source: `on-confirm` (default, loses nothing), `on-publish`, `no-ack`."
    )
    reconnect_delay: values.SecondsOrNone = key("Longest wait in seconds before connecting again; 5 by default.")
    quarantine_after: values.SecondsOrNever = key(
        "Seconds, or a time such as `10m`, after which a message goes to the quarantine that the destination refuses "
        "while it takes others; `never` for none. 10 minutes by default. No quarantine is beside a source of `amqp10`."
    )
    lag_critical: values.LagLimit = key(
        "How far the shovel may fall behind before that counts as trouble: a time such as `5m`, or a number of "
        "messages that wait; `off` by default."
    )
    set_headers: values.SetHeaders = key(
        "Headers that every message gets, with their values, in place of those that it has of these names "
        "([rules](rules.md)); none by default."
    )
    remove_headers: values.RemovedHeaders = key(
        "Names of headers to remove from messages; `NAME*` stands for all that begin so. None by default."
    )
    rate_limit: values.RateLimits = key(
        "The most `messages`, `bytes` of their bodies, or both, that the shovel forwards in a second; `off` by default."
    )
    prefetch_count: values.Prefetch = key("Old spelling of `src-prefetch-count`.", json_schema_extra=DEPRECATED)
    delete_after: DeleteAfterKey = key("Old spelling of `src-delete-after`.", json_schema_extra=DEPRECATED)
    publish_properties: Annotated[PropertiesModel, MAY_BE_EMPTY] = key(
        "Old spelling of `dest-publish-properties`.", json_schema_extra=DEPRECATED
    )
    add_forward_headers: bool = key("Old spelling of `dest-add-forward-headers`.", json_schema_extra=DEPRECATED)
    add_timestamp_header: bool = key("Old spelling of `dest-add-timestamp-header`.", json_schema_extra=DEPRECATED)
    internal: bool = key("Set by brokers on their own shovels; ignored.")
    internal_owner: dict[str, str] = key("Set by brokers on their own shovels; ignored.", alias="internal_owner")

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        is_amqp10 = raw.get("src-protocol") == AMQP10
        if not is_amqp10 and "src-address" not in raw and ("src-queue" in raw) == ("src-exchange" in raw):
            spot.error("a shovel needs either src-queue or src-exchange, and not both", key=True)
        if "dest-queue" in raw and "dest-exchange" in raw:
            spot.error("dest-queue and dest-exchange exclude each other", "dest-exchange", key=True)
        after = raw.get("src-delete-after", raw.get("delete-after"))
        name = "src-delete-after" if "src-delete-after" in raw else "delete-after"
        if raw.get("ack-mode") == "no-ack" and isinstance(after, (int, float)):
            spot.error("a number of messages can't be counted with ack-mode: no-ack", name, key=True)
        if is_amqp10 and after == model.DeleteAfter.QUEUE_LENGTH:
            report = spot.warn if spot.native else spot.error
            report("queue-length is for amqp091; with amqp10 write a number of messages, or never", name, key=True)
        if is_amqp10 and "quarantine-after" in raw:
            spot.warn(
                "quarantine-after does nothing for a source of amqp10: no quarantine is beside it",
                "quarantine-after",
                key=True,
            )
        if lacks_destination(raw):
            spot.error(LACKS_DESTINATION, key=True)
        for end in ("src", "dest"):
            _check_protocol(end, raw, spot)
        if is_amqp10 and raw.get("dest-protocol") == AMQP10:
            for key_ in sorted({"set-headers", "remove-headers"} & raw.keys()):
                spot.error(f"{key_} needs an end of amqp091: between two of amqp10 messages go on as they are", key_)
        _report_keys_without_effect(raw, spot)
        check_stream(raw, spot)

    def to_core(self, name: str, place: Place) -> model.Shovel:
        return model.Shovel(
            name=name,
            source_uris=_reached(self.src_uri, self.src_protocol),
            destination_uris=_reached(self.dest_uri, self.dest_protocol),
            place=place,
            source=self._source(),
            destination=self._destination(),
            settings=self._settings(),
            destination_is_local=self.dest_protocol == LOCAL,
            source_is_local=self.src_protocol == LOCAL,
        )

    def _source(self) -> model.ShovelSource:
        if self.src_protocol == AMQP10:
            return model.AddressSource(self.src_address, bool(self.src_predeclared))
        if "src_exchange" in self.model_fields_set:
            return model.ExchangeSource(self.src_exchange, self.src_exchange_key or "")
        return model.QueueSource(self.src_queue, self.src_queue_args or EMPTY, bool(self.src_predeclared))

    def _destination(self) -> model.ShovelDestination:
        if self.dest_protocol == AMQP10:
            return model.AddressDestination(self.dest_address, bool(self.dest_predeclared))
        if "dest_queue" not in self.model_fields_set:
            return model.ExchangeDestination(self.dest_exchange, self.dest_exchange_key)
        return model.QueueDestination(self.dest_queue, self.dest_queue_args or EMPTY, bool(self.dest_predeclared))

    def _settings(self) -> model.ShovelSettings:
        written = {
            name: getattr(self, key)
            for name, keys in _SPELLINGS.items()
            for key in keys
            if key in self.model_fields_set
        }
        if "consumer_arguments" in written:
            written["consumer_arguments"] = with_time(written["consumer_arguments"])
        if "publish_properties" in written:
            written["publish_properties"] = written["publish_properties"].to_core()
        if self.src_protocol == AMQP10 and written.get("delete_after") is model.DeleteAfter.QUEUE_LENGTH:
            del written["delete_after"]  # RabbitMQ 3.10 takes it, and never ends
        if self._needs_acks and written.get("ack_mode") is model.AckMode.NO_ACK:
            written["ack_mode"] = model.AckMode.ON_PUBLISH
        return model.ShovelSettings(**written)

    @property
    def _needs_acks(self) -> bool:
        """True for a local source that may be a stream, which nothing shows."""
        return self.src_protocol == LOCAL and "src_exchange" not in self.model_fields_set

    def warnings(self, spot: Spot) -> None:
        warn_uris(_reached(self.src_uri, self.src_protocol), spot, "src-uri")
        warn_uris(_reached(self.dest_uri, self.dest_protocol), spot, "dest-uri")
        if self._needs_acks and self.ack_mode is model.AckMode.NO_ACK:
            spot.warn(
                "no-ack becomes on-publish with src-protocol: local, as the queue may be a stream; write on-publish, "
                "or, if it is no stream, src-protocol: amqp091",
                "ack-mode",
            )
        if self.src_protocol == AMQP10:
            self._warn_of_address("src", self.src_address, is_predeclared=self.src_predeclared, spot=spot)
        if self.dest_protocol == AMQP10:
            self._warn_of_address("dest", self.dest_address, is_predeclared=self.dest_predeclared, spot=spot)

    def _warn_of_address(self, end: str, address: str, *, is_predeclared: bool, spot: Spot) -> None:
        if spot.is_unresolved(f"{end}-address"):
            return
        found = addressed(address)
        if found is not None and not found.is_old and found.kind == "queue":
            return
        reads_stream = "x-stream-offset" in dict(self.src_consumer_args or ())
        if end == "src" and self.lag_critical and not reads_stream:
            spot.warn(
                "lag-critical does nothing at this address: how much waits is known only for /queues/NAME of "
                "RabbitMQ 4; leave it out",
                "lag-critical",
            )
        if is_predeclared:
            name = f"{end}-predeclared"
            spot.warn(
                f"{name} does nothing at this address: the agent declares /queues/NAME of RabbitMQ 4 only; leave "
                "it out",
                name,
            )


def _report_keys_without_effect(raw: Mapping[str, Any], spot: Spot) -> None:
    """Reports keys without effect, which RabbitMQ ignores silently."""
    report = spot.warn if spot.native else spot.error
    if "src-exchange-key" in raw and "src-exchange" not in raw:
        report("src-exchange-key does nothing without src-exchange", "src-exchange-key", key=True)
    if "dest-exchange-key" in raw and "dest-queue" in raw:
        report("dest-exchange-key does nothing with dest-queue", "dest-exchange-key", key=True)


LACKS_DESTINATION = "a shovel from amqp10 needs dest-queue or dest-exchange: its messages have no exchange of their own"


def lacks_destination(raw: Mapping[str, Any]) -> bool:
    """True if nothing says where messages of AMQP 1.0 are to go by 0-9-1."""
    is_converted = raw.get("src-protocol") == AMQP10 and raw.get("dest-protocol") != AMQP10
    return is_converted and not {"dest-queue", "dest-exchange"} & raw.keys()


def _check_protocol(end: str, raw: Mapping[str, Any], spot: Spot) -> None:
    """Report keys of one end that belong to another protocol than it has."""
    is_amqp10, address = raw.get(f"{end}-protocol") == AMQP10, f"{end}-address"
    own = {name for name in raw if name.startswith(f"{end}-") or (end == "dest" and name == "publish-properties")}
    foreign = own & (_NOT_OF_AMQP10 if is_amqp10 else _OF_AMQP10)
    for name in sorted(foreign):
        other = f"is a key of amqp091; with {end}-protocol: amqp10 write {address}"
        spot.error(f"{name} {other if is_amqp10 else f'needs {end}-protocol: amqp10'}", name, key=True)
    if is_amqp10 and not foreign and not raw.get(address):
        spot.error(f"{end}-protocol: amqp10 needs {address}", key=True)
    for name in sorted(own & _IGNORED) if is_amqp10 else ():
        spot.warn(f"{name} is ignored: a message that goes on by AMQP 1.0 must not change", name, key=True)


def _reached(uris: tuple[AmqpUri, ...], protocol: str | None) -> tuple[AmqpUri, ...]:
    """The addresses of one end: with `local`, those of the downstream itself, in the vhosts that the URIs name. A bare
    trailing '/' is the broker's default vhost by AMQP 1.0."""
    match protocol:
        case "local":
            return tuple(dict.fromkeys(AmqpUri(path=uri.path) for uri in uris))
        case "amqp10":
            return tuple(replace(uri, path=None, warnings=()) if uri.path == "/" else uri for uri in uris)
    return uris
