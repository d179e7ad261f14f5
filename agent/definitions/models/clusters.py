"""Clusters: upstreams and sets of them, the downstream, and their TLS settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

from agent.core.addresses import uri
from agent.core.addresses.uri import AmqpUri, HttpUrl, Mechanism, parse_http
from agent.core.addresses.url_text import Tls, check_file, check_server_name, refuse_nul
from agent.core.model import AckMode, ChannelUse, CleanupMode, LinkSettings, QueueType, SetMember, Upstream
from agent.core.settings import DownstreamSettings
from agent.definitions.document.findings import Spot
from agent.definitions.models import values
from agent.definitions.models.validation import SnakeCaseModel, StrictModel
from agent.definitions.models.values import INTEGRAL, MAY_BE_EMPTY, accepted_by, key, kind_of, readable, refuse
from agent.errors import Place, UriError

Address = TypeVar("Address", AmqpUri, HttpUrl)
_NO_BROKER_HONOURS = "ha-policy: no current broker supports mirrored queues; use queue-type: quorum"
_AS_THEY_ARE = ("host", "port", "protocol", "virtual_host", "username", "password", "heartbeat")


class SslOptionsModel(SnakeCaseModel):
    """TLS settings of an upstream that is written without a URI, or of the downstream."""

    noun = "ssl-options"

    cacertfile: Annotated[values.Text, accepted_by(partial(check_file, key="cacertfile"))] = key(
        "File with the certificates of the authorities to trust."
    )
    certfile: Annotated[values.Text, accepted_by(partial(check_file, key="certfile"))] = key(
        "File with the agent's own certificate."
    )
    keyfile: Annotated[values.Text, accepted_by(partial(check_file, key="keyfile"))] = key(
        "File with the private key of `certfile`."
    )
    verify: Literal["verify_peer", "verify_none"] = key("`verify_peer`, the default, or `verify_none`.")
    fail_if_no_peer_cert: bool = key("Accepted for compatibility; it applies to servers.")
    password: values.SecretText = key("Password of `keyfile`.")
    depth: Annotated[int, Field(ge=0, le=255), INTEGRAL] = key(
        "Accepted for compatibility; chains may have any length."
    )
    server_name_indication: Annotated[values.Text, accepted_by(check_server_name)] = key(
        "Host name that the peer's certificate has to match; the host by default. `disable` accepts any certificate "
        "signed by the authorities."
    )

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        if "keyfile" in raw and "certfile" not in raw:
            spot.error("keyfile is given without certfile", "keyfile", key=True)

    def to_core(self) -> Tls:
        return Tls(**(self.written() | {"verify": self.verify != "verify_none"}))


def warn_unverified(spot: Spot) -> None:
    spot.warn("verify_none: the server's identity is not checked; set cacertfile instead", "ssl-options", "verify")


def _ha_policy(value: object) -> object:
    if isinstance(value, list | dict):
        return json.dumps(value)
    if isinstance(value, str):
        return value
    raise refuse(f"expected text, a list or a mapping, got {kind_of(value)}")


HaPolicy = Annotated[
    str, BeforeValidator(_ha_policy), WithJsonSchema({"anyOf": [{"type": t} for t in ("string", "array", "object")]})
]


class LinkSettingsModel(StrictModel):
    """The settings of an upstream's links; a member of a set may override them."""

    exchange: values.ShortText = key("Name of the upstream exchange; the federated exchange's own by default.")
    queue: values.ShortText = key("Name of the upstream queue to federate from; the federated queue's own by default.")
    consumer_tag: values.ShortText = key("Consumer tag of queue links; `federation-link-NAME` by default.")
    prefetch_count: values.Prefetch = key(
        "Largest number of unacknowledged messages; `auto`, the default, adapts it to the path."
    )
    reconnect_delay: values.SecondsOrNone = key("Longest wait in seconds before connecting again; 5 by default.")
    max_hops: Annotated[int, Field(ge=1, le=2**15 - 1), INTEGRAL] = key(
        "How many federation links a message may cross before it stops; 1 by default."
    )
    ack_mode: Annotated[AckMode, Strict(False)] = key(
        "When a message is acknowledged upstream: `on-confirm` (default, loses nothing), `on-publish` or `no-ack`."
    )
    trust_user_id: bool = key("Whether the `user_id` of messages is kept; false by default.")
    expires: Annotated[int, Field(ge=1, le=values.MAX_EXPIRY), INTEGRAL, values.WITHOUT_UNIT] = key(
        "Milliseconds without a consumer after which the upstream queue is deleted; never by default."
    )
    message_ttl: values.Milliseconds = key(
        "Milliseconds that a message may wait in the upstream queue; no limit by default."
    )
    queue_type: Annotated[QueueType, Strict(False)] = key("Type of the upstream queue: `classic` (default), `quorum`.")
    ha_policy: HaPolicy = key("A key of RabbitMQ 2.x; accepted with a warning, because no current broker supports it.")
    bind_nowait: bool = key("Accepted for compatibility; the agent always pipelines its bindings.")
    channel_use_mode: Annotated[ChannelUse, Strict(False)] = key(
        "Accepted for compatibility (`multiple`, `single`); the agent uses the channels it needs."
    )
    resource_cleanup_mode: Annotated[CleanupMode, Strict(False)] = key(
        "`default` deletes the upstream queue when the link is removed; `never` keeps it."
    )
    forward_unrouted: bool = key(
        "Whether to federate all messages, even if no binding matches, so that an alternate exchange downstream gets "
        "them; not for direct exchanges. False by default."
    )
    quarantine_after: values.SecondsOrNever = key(
        "Seconds, or a time such as `10m`, after which a message goes to the quarantine that the destination refuses "
        "while it takes others; `never` for none. 10 minutes by default."
    )
    probe: values.SecondsOrOff = key(
        "Seconds, or a time such as `10s`, between probes, which prove that an exchange link delivers and measure its "
        "lag; `off` by default."
    )
    lag_critical: values.LagLimit = key(
        "How far a link may fall behind before that counts as trouble: a time such as `5m`, or a number of messages "
        "that wait; `off` by default."
    )
    set_headers: values.SetHeaders = key(
        "Headers that every message gets, with their values, in place of those that it has of these names "
        "([rules](rules.md)); none by default."
    )
    remove_headers: values.RemovedHeaders = key(
        "Names of headers to remove from messages; `NAME*` stands for all that begin so. None by default."
    )
    rate_limit: values.RateLimits = key(
        "The most `messages`, `bytes` of their bodies, or both, that a link forwards in a second; `off` by default."
    )

    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self.written().items() if name in LinkSettingsModel.model_fields}

    def warnings(self, spot: Spot) -> None:
        if "ha_policy" in self.model_fields_set:
            spot.warn(_NO_BROKER_HONOURS, "ha-policy")


def _mechanism(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class UpstreamModel(LinkSettingsModel):
    """A remote cluster to federate from."""

    noun = "an upstream"
    parts: ClassVar[tuple[str, ...]] = (
        "host",
        "port",
        "protocol",
        "virtual-host",
        "username",
        "password",
        "mechanism",
        "heartbeat",
        "ssl-options",
    )
    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["uri"]}, {"required": ["host"]}],
            "dependentSchemas": {"uri": {"not": {"anyOf": [{"required": [part]} for part in parts]}}},
        }
    )

    uri: values.AmqpUris = key("AMQP URI of the cluster, or a list of interchangeable ones.")
    host: values.Name = key("Host to connect to, instead of `uri`.")
    port: Annotated[int, Field(ge=1, le=65535), INTEGRAL] = key("Port; 5672, or 5671 with amqps, by default.")
    protocol: Literal["amqp", "amqps"] = key("`amqp`, the default, or `amqps`.")
    virtual_host: Annotated[values.ShortText, accepted_by(partial(refuse_nul, key="virtual-host"))] = key(
        "Virtual host of the upstream; the federated object's own by default."
    )
    username: Annotated[values.Text, accepted_by(partial(refuse_nul, key="username"))] = key(
        "User to connect as; guest by default."
    )
    password: Annotated[values.SecretText, accepted_by(partial(refuse_nul, key="password"))] = key(
        "Password of `username`; guest by default."
    )
    mechanism: Annotated[
        Literal["default", "plain", "amqplain", "external"],
        BeforeValidator(_mechanism),
        WithJsonSchema({"type": "string", "pattern": "^(?i:default|plain|amqplain|external)$"}),
    ] = key("How to authenticate: `default` (PLAIN or AMQPLAIN), `plain`, `amqplain` or `external`.")
    heartbeat: Annotated[
        int,
        Field(ge=0, le=65535),
        INTEGRAL,
        BeforeValidator(lambda value: 0 if value == "none" else value),
        WithJsonSchema({"anyOf": [{"const": "none"}, {"type": "integer", "minimum": 0, "maximum": 65535}]}),
    ] = key("Seconds between heartbeats, 10 by default, or `none`.")
    ssl_options: Annotated[SslOptionsModel, MAY_BE_EMPTY] = key("TLS settings, with protocol `amqps`.")
    management: values.HttpUrls = key(
        "URL of the cluster's HTTP API, or a list: with it, and with `agent.status-export`, the report also accounts "
        "for what entered the links' queues there. Login and TLS settings are those of the first `uri` unless it has "
        "its own."
    )

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        parts = [part for part in cls.parts if part in raw]
        if "uri" in raw:
            for part in parts:
                spot.error(f"'{part}' is given together with 'uri'; give either the URI or its parts", part, key=True)
        elif "host" not in raw:
            spot.error("an upstream needs the key 'uri' (or 'host')", key=True)
        if isinstance(raw.get("ssl-options"), dict):
            SslOptionsModel.rules(raw["ssl-options"], spot.at("ssl-options"))
            if raw.get("protocol") != "amqps" and not spot.is_unresolved("protocol"):
                spot.warn("ssl-options do nothing without protocol: amqps", "ssl-options", key=True)
        _check_host(raw.get("host"), spot)
        for url in readable(raw.get("management"), parse_http):
            for warning in url.warnings:
                spot.warn(f"management: {warning}", "management")

    def to_core(self, name: str, place: Place) -> Upstream:
        return Upstream(name, self.endpoints(), place, LinkSettings(**self.settings()), self._apis())

    def _apis(self) -> tuple[HttpUrl, ...]:
        first = self.endpoints()[0]
        return tuple(url.completed(first.login, first.tls) for url in self.management or ())

    def endpoints(self) -> tuple[AmqpUri, ...]:
        if "uri" in self.model_fields_set:
            return self.uri
        written = self.written()
        mechanism = written.get("mechanism", "default")
        return (
            uri.from_parts(
                **{name: written[name] for name in _AS_THEY_ARE if name in written},
                mechanism=None if mechanism == "default" else Mechanism(mechanism),
                tls=self.ssl_options.to_core() if "ssl_options" in written else None,
            ),
        )

    def warnings(self, spot: Spot) -> None:
        super().warnings(spot)
        warn_uris(self.uri, spot, "uri")
        if "ssl_options" in self.model_fields_set and self.ssl_options.verify == "verify_none":
            warn_unverified(spot)


def _check_host(host: object, spot: Spot) -> None:
    if not isinstance(host, str) or not host:
        return
    try:
        uri.parse(uri.from_parts(host=host).safe)
    except UriError:
        spot.error("the host is invalid; give a host name or an IP address, and the port in 'port'", "host")


def warn_uris(uris: tuple[AmqpUri, ...] | None, spot: Spot, name: str) -> None:
    for endpoint in uris or ():
        for warning in endpoint.warnings:
            spot.warn(f"{name}: {warning}", name)


class SetMemberModel(LinkSettingsModel):
    """One upstream of a set."""

    noun = "a member of an upstream set"

    upstream: values.Name = Field(description="Name of the upstream; mandatory.")

    def to_core(self) -> SetMember:
        settings = self.settings()
        return SetMember(self.upstream, LinkSettings(**settings), frozenset(settings))


class DownstreamModel(StrictModel):
    """The cluster that the agent runs beside."""

    noun = "downstream"
    no_path: ClassVar[str] = "the agent serves every vhost"

    uri: values.AmqpUris = Field(description="AMQP URI of the cluster, or a list of interchangeable ones; mandatory.")
    management: values.HttpUrls = key("URL of its HTTP API, or a list; without it bindings come from `bindings`.")
    ssl_options: Annotated[SslOptionsModel, MAY_BE_EMPTY] = key(
        "TLS settings for `amqps` and `https` above; an address that has some of its own uses those instead."
    )

    def to_core(self) -> DownstreamSettings:
        tls = self.ssl_options.to_core() if "ssl_options" in self.model_fields_set else Tls()
        return DownstreamSettings(_secured(self.uri, tls), _secured(self.management or (), tls))

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        endpoints = readable(raw.get("uri"), uri.parse)
        for endpoint in endpoints:
            if endpoint.is_downstream_itself:
                spot.error("uri: it needs a host", "uri")
            if endpoint.vhost("/") not in {"/", ""}:
                spot.warn(f"uri: the path is ignored; {cls.no_path}", "uri")
        warn_uris(tuple(endpoint for endpoint in endpoints if endpoint.path != "/"), spot, "uri")
        urls = readable(raw.get("management"), parse_http)
        for url in urls:
            for warning in url.warnings:
                spot.warn(f"management: {warning}", "management")
        if isinstance(raw.get("ssl-options"), dict):
            used = [*(each.tls for each in endpoints), *(each.tls for each in urls)]
            _check_ssl_options(raw["ssl-options"], used, spot)


def _check_ssl_options(raw: Mapping[str, Any], used: Iterable[Tls | None], spot: Spot) -> None:
    SslOptionsModel.rules(raw, spot.at("ssl-options"))
    if all(tls is None or tls.are_own for tls in used):
        spot.warn("ssl-options do nothing: no address is amqps or https without settings of its own", "ssl-options")
    elif raw.get("verify") == "verify_none":
        warn_unverified(spot)


def _secured(addresses: tuple[Address, ...], tls: Tls) -> tuple[Address, ...]:
    return tuple(each if each.tls is None or each.tls.are_own else replace(each, tls=tls) for each in addresses)
